#pragma once
// The pages that reports are put into: styles and plots, no dependency, nothing fetched. A page is
// `page_begin`, then `page_of_a_run`, `page_of_many` or `page_of_a_plan`; @TITLE@, @TABLE@ and @DATA@ are to
// be put in.

#include <string_view>

namespace mooncaf::sim {

inline constexpr std::string_view page_begin = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>mooncaf</title>
<style>
:root{--ink:#1b2330;--dim:#5a6575;--grid:#e3e7ec;--paper:#fff;--c0:#2563c9;--c1:#c2490f;--c2:#20793f;--c3:#8a35b0;--c4:#8a6d00;--c5:#b0246a;--c6:#0b7a85;--c7:#5a6575}
@media(prefers-color-scheme:dark){:root{--ink:#dfe5ee;--dim:#a3afbf;--grid:#2d3644;--paper:#141a22;--c0:#6ea2ff;--c1:#ff9460;--c2:#5fcf86;--c3:#cf8bf0;--c4:#d8b93f;--c5:#ff7ab6;--c6:#4fd0dc;--c7:#a3afbf}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:1.5rem auto;max-width:75rem;padding:0 1rem}
h1{font-size:1.05rem;font-weight:600}h2{font-size:.95rem;margin:.2rem 0 0}
pre,.wide{overflow:auto;font-size:.8rem;line-height:1.35}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15rem .7rem;text-align:right;border-bottom:1px solid var(--grid)}
td:first-child,th:first-child{text-align:left;color:var(--dim)}td.best{font-weight:700}tr.differs td{color:var(--dim)}
table.summary td{text-align:left;vertical-align:top;white-space:normal}details{margin:.8rem 0}summary{cursor:pointer;font-size:.9rem}.bar{fill-opacity:.28}svg text.name{fill:var(--ink)}
#plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(30rem,100%),1fr));gap:1.4rem}
svg{width:100%;height:auto;display:block;touch-action:pan-y}svg text{fill:var(--dim);font-size:11px}
.grid{stroke:var(--grid)}.mark{stroke:var(--dim);stroke-dasharray:4 3}.died{stroke:var(--c1);fill:var(--c1)}.line{fill:none;stroke-width:1.6}.cursor{stroke:var(--ink);visibility:hidden}
.key,.read,.none{font-size:.8rem;color:var(--dim)}.read{min-height:1.3em;font-variant-numeric:tabular-nums;color:var(--ink)}
.key i{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .9em;border-radius:2px}
.scale{display:inline-block;width:6em;height:.8em;margin:0 .4em;border-radius:2px;vertical-align:-.05em}
</style></head><body>
<h1>@TITLE@</h1>@TABLE@<div id="plots"></div>
<script>
const data=@DATA@;
const colours=[0,1,2,3,4,5,6,7].map(i=>`var(--c${i})`);
const W=520,H=240,L=56,R=12,T=12,B=34,NS='http://www.w3.org/2000/svg';
const node=(name,set,text)=>{const n=document.createElementNS(NS,name);for(const k in set)n.setAttribute(k,set[k]);if(text!=null)n.textContent=text;return n};
const element=(name,cls,text)=>{const n=document.createElement(name);n.className=cls;n.textContent=text||'';return n};
function ticks(lo,hi,log){
  if(log){const out=[],few=Math.log10(hi/lo)>3;for(let e=Math.floor(Math.log10(lo));e<=Math.ceil(Math.log10(hi));e++)for(const m of few?[1]:[1,2,5]){const v=m*10**e;if(v>=lo&&v<=hi)out.push(v)}return out}
  const raw=(hi-lo)/5||1,p=10**Math.floor(Math.log10(raw)),step=[1,2,5,10].map(m=>m*p).find(s=>s>=raw*.999);
  const out=[];for(let v=Math.ceil(lo/step)*step;v<=hi+step*1e-9;v+=step)out.push(v);return out}
const label=v=>v===0?'0':Math.abs(v)>=10000?+(v/1000).toPrecision(3)+'k':String(+v.toPrecision(3));
const clamp=(v,lo,hi)=>Math.max(lo,Math.min(hi,v));
function box(title){const b=element('section',''),h=element('h2','',title);b.append(h);document.getElementById('plots').append(b);return b}
function nothing(title,why){box(title).append(element('div','none',why))}
// A plot: x and y have lo, hi and a unit; read(x) says what stands under the cursor.
function frame(title,x,y,read){
  const b=box(title),said=element('div','read'),svg=node('svg',{viewBox:`0 0 ${W} ${H}`,role:'img','aria-label':title});
  b.append(said,svg);
  const part=v=>x.log?Math.log(v/x.lo)/Math.log(x.hi/x.lo):(v-x.lo)/(x.hi-x.lo||1);
  const sx=v=>L+(W-L-R)*part(v),sy=v=>H-B-(H-T-B)*(v-y.lo)/(y.hi-y.lo||1);
  for(const v of ticks(x.lo,x.hi,x.log))svg.append(node('line',{class:'grid',x1:sx(v),x2:sx(v),y1:T,y2:H-B}),node('text',{x:sx(v),y:H-B+14,'text-anchor':'middle'},label(v)));
  if(!y.rows)for(const v of ticks(y.lo,y.hi))svg.append(node('line',{class:'grid',x1:L,x2:W-R,y1:sy(v),y2:sy(v)}),node('text',{x:L-6,y:sy(v)+4,'text-anchor':'end'},label(v)));
  svg.append(node('text',{x:W-R,y:H-4,'text-anchor':'end'},x.unit));
  if(!y.rows)svg.append(node('text',{x:12,y:(H-B+T)/2,'text-anchor':'middle',transform:`rotate(-90 12 ${(H-B+T)/2})`},y.unit));
  const cursor=node('line',{class:'cursor',y1:T,y2:H-B});
  svg.addEventListener('pointermove',e=>{
    const r=svg.getBoundingClientRect(),px=(e.clientX-r.left)/r.width*W,py=(e.clientY-r.top)/r.height*H,p=clamp((px-L)/(W-L-R),0,1);
    const at=x.log?x.lo*(x.hi/x.lo)**p:x.lo+(x.hi-x.lo)*p;
    cursor.setAttribute('x1',sx(at));cursor.setAttribute('x2',sx(at));cursor.style.visibility='visible';
    said.textContent=read(at,clamp((H-B-py)/(H-T-B),0,.9999))});
  svg.addEventListener('pointerleave',()=>{cursor.style.visibility='hidden';said.textContent=''});
  return{box:b,svg,sx,sy,end:()=>svg.append(cursor)}}
function key(b,names){const p=element('div','key');names.forEach((n,i)=>{const c=document.createElement('i');c.style.background=colours[i];p.append(c,n)});b.append(p)}
function line(f,xs,ys,i){
  let d='',pen='M';xs.forEach((x,k)=>{if(ys[k]==null){pen='M';return}d+=pen+f.sx(x).toFixed(1)+' '+f.sy(ys[k]).toFixed(1);pen='L'});
  f.svg.append(node('path',{class:'line',d,stroke:colours[i]}))}
const before=(points,v)=>{let s=0;for(const p of points){if(p[0]>v)break;s=p[1]}return s};
function cdf(title,sets,mark){
  sets=sets.filter(s=>s.points.length);if(!sets.length)return nothing(title,'no request got that far');
  const all=sets.flatMap(s=>s.points.map(p=>Math.max(p[0],1e-4)));
  const marks=mark==null?[]:[mark],lo=Math.min(...all,...marks)/1.2,hi=Math.max(...all,...marks)*1.2;
  const f=frame(title,{lo,hi,log:true,unit:'seconds'},{lo:0,hi:100,unit:'% of them at most that long'},
    v=>label(v)+' s: '+sets.map(s=>s.name+' '+(100*before(s.points,v)).toFixed(1)+' %').join(', '));
  if(mark!=null)f.svg.append(node('line',{class:'mark',x1:f.sx(mark),x2:f.sx(mark),y1:T,y2:H-B}),node('text',{x:f.sx(mark)-4,y:H-B-6,'text-anchor':'end'},'SLO'));
  sets.forEach((s,i)=>line(f,s.points.map(p=>Math.max(p[0],lo)),s.points.map(p=>100*p[1]),i));key(f.box,sets.map(s=>s.name));f.end()}
)page";

inline constexpr std::string_view page_of_a_run =
    R"page(const span={lo:data.at[0],hi:data.at[data.at.length-1],unit:'seconds since the trace began'};
const row=t=>{let k=0;while(k+1<data.at.length&&data.at[k]<t)k++;return k};
const died=t=>data.deaths.filter(d=>Math.abs(d[0]-t)<(span.hi-span.lo)*.008).map(d=>'; '+d[1]+' died').join('');
function over(title,unit,sets,none,top){
  const most=Math.max(...sets.flatMap(s=>s.values.filter(v=>v!=null)),0);
  if(data.at.length<2||most<=0)return nothing(title,data.at.length<2?'over within a second':none);
  const hi=top||most*1.05;
  const f=frame(title,span,{lo:0,hi,unit},t=>{const k=row(t);return label(data.at[k])+' s: '+sets.map(s=>s.name+' '+(s.values[k]==null?'–':label(s.values[k]))).join(', ')+died(t)});
  for(const m of data.marks)if(m>=span.lo&&m<=span.hi)f.svg.append(node('line',{class:'mark',x1:f.sx(m),x2:f.sx(m),y1:T,y2:H-B}));
  for(const [m,who] of data.deaths)if(m>=span.lo&&m<=span.hi){const g=node('path',{class:'died',d:`M${f.sx(m)-5} ${T}h10l-5 8zM${f.sx(m)} ${T}V${H-B}`});g.append(node('title',{},who+' died'));f.svg.append(g)}
  sets.forEach((s,i)=>line(f,data.at,s.values.map(v=>v==null?v:Math.min(v,hi)),i));if(sets.length>1)key(f.box,sets.map(s=>s.name));f.end()}
function heat(title,rows,names,colour,hi,scale,note){
  const n=rows.length,c=data.at.length;if(!n||c<2)return;
  const f=frame(title,span,{lo:0,hi:n,rows:true},(t,up)=>{const k=row(t),i=Math.floor(up*n);return label(data.at[k])+' s: '+names[i]+' '+scale(rows[i][k])});
  const w=(W-L-R)/c,h=(H-T-B)/n;
  rows.forEach((r,i)=>{r.forEach((v,k)=>{if(v>hi*.01)f.svg.append(node('rect',{x:(L+k*w).toFixed(1),y:(H-B-(i+1)*h).toFixed(1),width:(w+.3).toFixed(1),height:(h*.92).toFixed(1),fill:colour(i),'fill-opacity':Math.min(v/hi,1).toFixed(2)}))});
    if(i%Math.ceil(n/12)===0)f.svg.append(node('text',{x:L-6,y:H-B-(i+.5)*h+4,'text-anchor':'end'},names[i].replace(/^(prefill|decode|coupled) /,m=>m[0])))});
  const p=element('div','key');
  [...new Set(rows.map((_,i)=>colour(i)))].forEach((col,j)=>{const s=element('span','scale');s.style.background=`linear-gradient(90deg,transparent,${col})`;p.append(j?' · ':'',scale(0),s,scale(hi))});
  p.append(' '+note);f.box.append(p);f.end()}
const percent=v=>v.map(x=>x==null?x:100*x),seconds=data.at.map((t,k)=>k?t-data.at[k-1]:data.at[1]-data.at[0]);
cdf('Time to the first token',[{name:'TTFT',points:data.ttft}],data.ttft_slo);
cdf('Time between tokens',[{name:'all gaps',points:data.gap},{name:'of a request',points:data.tbt}],data.tbt_slo);
over('How near the SLOs are','% of the SLO',[{name:'prefill: queue over TTFT SLO',values:percent(data.prefill_load)},{name:'decode: step over TBT SLO',values:percent(data.decode_load)}],'nothing ran');
over('What fills decode','% of what there is',[{name:'batch',values:percent(data.decode_batch)},{name:'KV memory',values:percent(data.decode_memory)}],'nothing was decoded');
over('Requests waiting and running','requests',[{name:'wait for prefill',values:data.prefill_waiting},{name:'decode',values:data.decode_running},{name:'wait for decode',values:data.decode_waiting}],'nothing waited or ran');
over('Prefix blocks found','% of those asked for',[{name:'found',values:percent(data.hit_share)}],'no block was found in a cache',100);
const varies=v=>v.some(x=>x!==v[0]);
if([data.prefill_serving,data.decode_serving,data.paid].some(varies))over('Machines','instances',[{name:'prefill serving',values:data.prefill_serving},{name:'decode serving',values:data.decode_serving},{name:'paid for',values:data.paid}],'none');
over('Rejected requests','requests a second',[{name:'rejected',values:data.rejected.map((v,k)=>v/seconds[k])}],'none was rejected');
heat('Holders of the hottest blocks, #1 the hottest',data.replicas,data.watch.map((_,i)=>'#'+(i+1)),()=>colours[2],Math.max(1,...data.replicas.flat()),v=>label(v)+' nodes','');
heat('Time computing, of each instance',data.busy,data.busy_names,i=>data.busy_names[i].startsWith('decode')?colours[1]:colours[0],1,v=>Math.round(100*v)+' %',data.busy_note);
</script></body></html>
)page";

inline constexpr std::string_view page_of_many = R"page(
const names=data.runs.map(r=>r.name),same=get=>data.runs.every(r=>get(r)===get(data.runs[0]))?get(data.runs[0]):null;
const ends=data.runs.flatMap(r=>r.at),span={lo:Math.min(...ends),hi:Math.max(...ends),unit:'seconds since the trace began'};
const at=(r,t)=>{let k=0;while(k+1<r.at.length&&r.at[k]<t)k++;return k};
const shown=v=>v==null?'–':label(v);
function over(title,unit,get,none,top){
  const sets=data.runs.map(get),most=Math.max(...sets.flat().filter(v=>v!=null),0);
  if(ends.length<2||most<=0)return nothing(title,none);
  const hi=top||most*1.05;
  const f=frame(title,span,{lo:0,hi,unit},t=>label(t)+' s: '+data.runs.map((r,i)=>r.name+' '+shown(t>r.at[r.at.length-1]?null:sets[i][at(r,t)])).join(', '));
  data.runs.forEach((r,i)=>line(f,r.at,sets[i].map(v=>v==null?v:Math.min(v,hi)),i));key(f.box,names);f.end()}
const percent=v=>v.map(x=>x==null?x:100*x),rate=r=>r.rejected.map((v,k)=>v/(k?r.at[k]-r.at[k-1]:r.at[0]||1));
const points=field=>data.runs.map(r=>({name:r.name,points:r[field]}));
cdf('Time to the first token',points('ttft'),same(r=>r.ttft_slo));
cdf('Time between tokens, of a request',points('tbt'),same(r=>r.tbt_slo));
over('Prefill: queue over TTFT SLO','% of the SLO',r=>percent(r.prefill_load),'nothing ran');
over('Decode: step over TBT SLO','% of the SLO',r=>percent(r.decode_load),'nothing was decoded');
over('Requests that wait for prefill','requests',r=>r.prefill_waiting,'nothing waited');
over('Requests that decode','requests',r=>r.decode_running,'nothing was decoded');
over('Prefix blocks found','% of those asked for',r=>percent(r.hit_share),'no block was found in a cache',100);
if(data.runs.some(r=>r.paid.some(x=>x!==r.paid[0])))over('Machines paid for','instances',r=>r.paid,'none');
over('Rejected requests','requests a second',rate,'none was rejected');
</script></body></html>
)page";

inline constexpr std::string_view page_of_a_plan = R"page(
const planned=data.planned_load,carried=data.carries[0],money=data.currency;
const span=(values,room)=>({lo:0,hi:Math.max(...values)*room});
const mark=(f,v,text)=>f.svg.append(node('line',{class:'mark',x1:f.sx(v),x2:f.sx(v),y1:T,y2:H-B}),node('text',{x:f.sx(v)-4,y:H-B-6,'text-anchor':'end'},text));
// Lines over loads: sets have name and values, one per load.
function curve(title,loads,unit,sets,top,marks){
  if(loads.length<2)return nothing(title,'only one load was looked at');
  const most=top||Math.max(...sets.flatMap(s=>s.values))*1.1,x={...span(loads,1.03),unit:'times this traffic'};
  const nearest=v=>loads.reduce((best,l,i)=>Math.abs(l-v)<Math.abs(loads[best]-v)?i:best,0);
  const f=frame(title,x,{lo:0,hi:most,unit},v=>{const i=nearest(v);return label(loads[i])+' times: '+sets.map(s=>(s.names?s.names[i]+', ':'')+label(s.values[i])+' '+unit).join(', ')});
  for(const [v,text] of marks)mark(f,v,text);
  sets.forEach((s,i)=>{line(f,loads,s.values,i);loads.forEach((l,k)=>f.svg.append(node('circle',{cx:f.sx(l),cy:f.sy(s.values[k]),r:2.6,fill:colours[i]})))});f.end()}
// A bar for each: what it is called, how long it is, what else is known of it.
function bars(title,unit,rows,marks,top){
  if(!rows.length)return nothing(title,'there is nothing else to compare with');
  const n=rows.length,x={lo:0,hi:top||Math.max(...rows.map(r=>r.value),...marks.map(m=>m[0]))*1.05,unit},h=(H-T-B)/n;
  const f=frame(title,x,{lo:0,hi:n,rows:true},(v,up)=>{const r=rows[n-1-Math.floor(up*n)];return r.name+': '+label(r.value)+' '+unit+(r.note?', '+r.note:'')});
  rows.forEach((r,i)=>{const y=T+i*h;
    f.svg.append(node('rect',{class:'bar',x:L,y:y+1,width:Math.max(f.sx(r.value)-L,1),height:h-2,fill:colours[r.chosen?1:0]}),
      node('text',{class:'name',x:L+5,y:y+h/2+4},r.name+(r.chosen?' (chosen)':'')),node('text',{x:L-6,y:y+h/2+4,'text-anchor':'end'},label(r.value)))});
  for(const [v,text] of marks)f.svg.append(node('line',{class:'mark',x1:f.sx(v),x2:f.sx(v),y1:T,y2:H-B}));
  if(marks.length)f.box.append(element('div','key','Broken line: '+marks.map(m=>m[1]+' '+label(m[0])).join('; ')+'. What was not chosen is known within 10 to 30 %.'));f.end()}
const price=p=>money&&p.cost_per_million_tokens?label(p.cost_per_million_tokens)+' '+money+' per million tokens':'';
const rows=points=>points.map(p=>({name:p.name,value:p.carries,chosen:p.chosen,note:price(p)}));
const goal=[[planned,'planned for']],times='times this traffic';
curve('Inside both SLOs, by load',data.cliff.map(c=>c.load),'% of the requests',[{name:'inside',values:data.cliff.map(c=>100*c.slo_share)}],105,[[planned,'planned for'],[carried,'carries']]);
const sizes=data.sizes,loads=sizes.map(s=>s.load),names=sizes.map(s=>s.name);
curve('Machines that other loads need',loads,'machines',[{name:'machines',names,values:sizes.map(s=>s.cluster.machines)}],0,goal);
if(money)curve('What a million tokens costs, by load',loads,money+' per million tokens',[{name:'price',names,values:sizes.map(s=>s.cost_per_million_tokens)}],0,goal);
bars('What it carries if something is worse',times,[{name:'as planned',value:carried,chosen:true,note:label(100*data.planned_share)+' % in time at the planned load'},...data.risks.map(r=>({name:r.what,value:r.carries,note:label(100*r.slo_share)+' % in time at the planned load'}))],goal);
bars('As many machines, used otherwise',times,rows([...data.around,{name:data.cluster.mode==='coupled'?data.cluster.prefill+' coupled':data.cluster.prefill+' prefill + '+data.cluster.decode+' decode',carries:carried,chosen:true,cost_per_million_tokens:0}]),goal);
for(const w of data.worth)bars('What it is worth: '+w.what,times,rows(w.points),goal);
bars('If '+label(data.overload_load)+' times the traffic comes: inside both SLOs, by admission','%',data.overload.map(o=>({name:o.admission,value:100*o.slo_share,chosen:o.admission===data.cluster.admission})),[],100);
</script></body></html>
)page";

}  // namespace mooncaf::sim
