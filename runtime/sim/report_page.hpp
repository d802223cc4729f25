#pragma once
// The page that a report is put into: styles and plots, no dependency, nothing fetched.

#include <string_view>

namespace mooncaf::sim {

inline constexpr std::string_view report_page = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>mooncaf simulate</title>
<style>
:root{--ink:#1b2330;--dim:#6b7686;--grid:#e3e7ec;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#dfe5ee;--dim:#93a0b2;--grid:#2d3644;--paper:#141a22}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;max-width:75rem;padding:0 1rem}
h1{font-size:1.15rem}h2{font-size:.95rem;margin:.2rem 0}
pre{overflow:auto;font-size:.8rem;line-height:1.35}
#plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(30rem,1fr));gap:1.2rem}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:11px}
.grid{stroke:var(--grid)}.mark{stroke:var(--dim);stroke-dasharray:4 3}.line{fill:none;stroke-width:1.5}
.key{font-size:.8rem;color:var(--dim)}.key i{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .9em;border-radius:2px}
</style></head><body>
<h1>@TITLE@</h1><pre>@TABLE@</pre><div id="plots"></div>
<script>
const data=@DATA@;
const colours=['#2563c9','#d1571b','#2a8f4f','#8b3fb3','#b8860b','#0f8b8d','#c2185b','#607080'];
const W=520,H=230,L=52,R=10,T=10,B=30,NS='http://www.w3.org/2000/svg';
const node=(name,set,text)=>{const n=document.createElementNS(NS,name);for(const k in set)n.setAttribute(k,set[k]);if(text!=null)n.textContent=text;return n};
function ticks(lo,hi,log){
  if(log){const out=[];for(let e=Math.floor(Math.log10(lo));e<=Math.ceil(Math.log10(hi));e++)for(const m of[1,3]){const v=m*10**e;if(v>=lo&&v<=hi)out.push(v)}return out}
  const raw=(hi-lo)/5||1,p=10**Math.floor(Math.log10(raw)),step=[1,2,5,10].map(m=>m*p).find(s=>s>=raw);
  const out=[];for(let v=Math.ceil(lo/step)*step;v<=hi+1e-9;v+=step)out.push(v);return out}
const label=v=>Math.abs(v)>=1000?(v/1000)+'k':String(+v.toPrecision(3));
function frame(title,unit,x,y){
  const box=document.createElement('div'),h=document.createElement('h2'),svg=node('svg',{viewBox:`0 0 ${W} ${H}`,role:'img','aria-label':title});
  h.textContent=title;box.append(h,svg);
  const sx=v=>L+(W-L-R)*(x.log?Math.log(v/x.lo)/Math.log(x.hi/x.lo):(v-x.lo)/(x.hi-x.lo||1));
  const sy=v=>H-B-(H-T-B)*(v-y.lo)/(y.hi-y.lo||1);
  for(const v of ticks(x.lo,x.hi,x.log)){svg.append(node('line',{class:'grid',x1:sx(v),x2:sx(v),y1:T,y2:H-B}),node('text',{x:sx(v),y:H-B+14,'text-anchor':'middle'},label(v)))}
  for(const v of ticks(y.lo,y.hi)){svg.append(node('line',{class:'grid',x1:L,x2:W-R,y1:sy(v),y2:sy(v)}),node('text',{x:L-5,y:sy(v)+4,'text-anchor':'end'},label(v)))}
  svg.append(node('text',{x:W-R,y:H-3,'text-anchor':'end'},unit));
  document.getElementById('plots').append(box);
  return{box,svg,sx,sy}}
function key(box,names){const p=document.createElement('div');p.className='key';names.forEach((n,i)=>{const c=document.createElement('i');c.style.background=colours[i%8];p.append(c,n)});box.append(p)}
function line(f,xs,ys,i){
  let d='';xs.forEach((x,k)=>{d+=(k?'L':'M')+f.sx(x).toFixed(1)+' '+f.sy(ys[k]).toFixed(1)});
  f.svg.append(node('path',{class:'line',d,stroke:colours[i%8]}))}
function cdf(title,sets,mark){
  sets=sets.filter(s=>s.points.length);if(!sets.length)return;
  const all=sets.flatMap(s=>s.points.map(p=>Math.max(p[0],1e-4)));
  const lo=Math.min(...all,mark)/1.2,hi=Math.max(...all,mark)*1.2;
  const f=frame(title,'seconds',{lo,hi,log:true},{lo:0,hi:1});
  f.svg.append(node('line',{class:'mark',x1:f.sx(mark),x2:f.sx(mark),y1:T,y2:H-B}),node('text',{x:f.sx(mark)-4,y:T+10,'text-anchor':'end'},'SLO'));
  sets.forEach((s,i)=>line(f,s.points.map(p=>Math.max(p[0],lo)),s.points.map(p=>p[1]),i));key(f.box,sets.map(s=>s.name))}
function over(title,sets,top){
  if(data.at.length<2)return;
  const hi=top||Math.max(...sets.flatMap(s=>s.values),1e-9)*1.05;
  const f=frame(title,'seconds',{lo:data.at[0],hi:data.at[data.at.length-1]},{lo:0,hi});
  sets.forEach((s,i)=>line(f,data.at,s.values.map(v=>Math.min(v,hi)),i));key(f.box,sets.map(s=>s.name))}
function heat(){
  const n=data.busy.length,c=data.at.length;if(!n||c<2)return;
  const f=frame('Busy share of each instance (prefill first)','seconds',{lo:data.at[0],hi:data.at[c-1]},{lo:0,hi:n});
  const w=(W-L-R)/c,h=(H-T-B)/n;
  data.busy.forEach((row,i)=>row.forEach((v,k)=>{if(v>0.01)f.svg.append(node('rect',{x:(L+k*w).toFixed(1),y:(H-B-(i+1)*h).toFixed(1),width:(w+.3).toFixed(1),height:(h*.92).toFixed(1),fill:i<data.prefill?colours[0]:colours[1],'fill-opacity':Math.min(v,1).toFixed(2)}))}))}
cdf('Time to the first token',[{name:'TTFT',points:data.ttft}],data.ttft_slo);
cdf('Time between tokens',[{name:'all gaps',points:data.gap},{name:'of a request',points:data.tbt}],data.tbt_slo);
over('Load of the pools (1 = SLO)',[{name:'prefill',values:data.prefill_load},{name:'decode',values:data.decode_load}]);
over('Requests waiting and running',[{name:'wait for prefill',values:data.prefill_waiting},{name:'decode',values:data.decode_running},{name:'wait for decode',values:data.decode_waiting}]);
over('Share of prefix blocks found',[{name:'hit rate',values:data.hit_share}],1);
over('Rejected requests per interval',[{name:'rejected',values:data.rejected}]);
if(data.replicas.length)over('Replicas of the hottest blocks',data.replicas.map((v,i)=>({name:'block '+data.watch[i],values:v})));
heat();
</script></body></html>
)page";

}  // namespace mooncaf::sim
