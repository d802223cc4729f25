// The charts of every page, as SVG that this script makes itself: small ones that follow a server (`lines`, `histogram`),
// and plots with axes of a report (`frame`, `line`, `cdf`). Nothing is fetched.
const $=id=>document.getElementById(id);
const node=(name,set,text)=>{
  const made=document.createElementNS('http://www.w3.org/2000/svg',name);
  for(const k in set)made.setAttribute(k,set[k]);
  if(text!=null)made.textContent=text;
  return made;
};
const element=(name,cls,text)=>{const made=document.createElement(name);made.className=cls;made.textContent=text||'';return made};
const clamp=(v,lo,hi)=>Math.max(lo,Math.min(hi,v));

/// One polyline for each run of points without a gap; a point is [x, y], and y is null in a gap.
function polylines(points,set){
  const runs=[[]];
  for(const [x,y] of points)if(y==null)runs.push([]);else runs[runs.length-1].push(x.toFixed(1)+','+y.toFixed(1));
  return runs.filter(run=>run.length).map(run=>node('polyline',{fill:'none',...set,points:run.join(' ')}));
}

// ---- charts that follow a server ----
const LOW=128; // their height; a pixel is a pixel, so that text keeps its shape in any window
/// Empties the chart. @returns its width.
function blank(id){
  const svg=$(id),w=svg.clientWidth||400;
  svg.setAttribute('viewBox',`0 0 ${w} ${LOW}`);
  svg.replaceChildren();
  return w;
}
function nothing_yet(id){
  const w=blank(id);
  $(id).append(node('text',{x:w/2,y:LOW/2,'text-anchor':'middle'},'nothing yet'));
}
/// @param series  {values, colour}; a null value is a gap. @param top  the value at the upper edge.
/// @param left,right  what is written in the corners. @param room  values that fill the width; 0: as many as there are.
function lines(id,series,top,left,right,room){
  const n=room||series[0].values.length;
  if(n<2)return nothing_yet(id);
  const w=blank(id),y=v=>v==null?v:LOW-8-(LOW-26)*v/(top||1);
  $(id).append(node('text',{x:4,y:12},left),node('text',{x:w-4,y:12,'text-anchor':'end'},right),
    ...series.flatMap(s=>polylines(s.values.map((v,i)=>[w*i/(n-1),y(v)]),{stroke:`var(--${s.colour})`,'stroke-width':2})));
}
/// @param buckets  {count, bound, title}: how many, what is written at the right edge, what is said on it.
function histogram(id,buckets){
  if(!buckets.length)return nothing_yet(id);
  const step=blank(id)/buckets.length,most=Math.max(...buckets.map(b=>b.count));
  buckets.forEach((b,i)=>{
    const height=(LOW-32)*b.count/most;
    const rect=node('rect',{x:(i*step+1).toFixed(1),y:(LOW-16-height).toFixed(1),width:(step-2).toFixed(1),
      height:height.toFixed(1),rx:2,fill:'var(--accent)'});
    rect.append(node('title',{},b.title));
    $(id).append(rect,node('text',{x:((i+1)*step-2).toFixed(1),y:LOW-4,'text-anchor':'end'},b.bound));
  });
}

// ---- plots with axes ----
const W=520,H=240,L=56,R=12,T=12,B=34; // of a plot, and of the margins around it
const colours=[0,1,2,3,4,5,6,7].map(i=>`var(--c${i})`);
function ticks(lo,hi,log){
  const out=[];
  if(log){
    const of_a_decade=Math.log10(hi/lo)>3?[1]:[1,2,5];
    for(let e=Math.floor(Math.log10(lo));e<=Math.ceil(Math.log10(hi));e++)
      for(const m of of_a_decade){const v=m*10**e;if(v>=lo&&v<=hi)out.push(v)}
    return out;
  }
  const raw=(hi-lo)/5||1,p=10**Math.floor(Math.log10(raw)),step=[1,2,5,10].map(m=>m*p).find(s=>s>=raw*.999);
  for(let v=Math.ceil(lo/step)*step;v<=hi+step*1e-9;v+=step)out.push(v);
  return out;
}
const label=v=>v===0?'0':Math.abs(v)>=10000?+(v/1000).toPrecision(3)+'k':String(+v.toPrecision(3));
const percent=values=>values.map(v=>v==null?v:100*v);
function box(title){const made=element('section','');made.append(element('h2','',title));$('plots').append(made);return made}
function nothing(title,why){box(title).append(element('div','none',why))}
/// A plot without its lines.
/// @param x,y  have lo, hi and a unit; y.rows: the caller names the rows itself.
/// @param read  what stands under the cursor, of x and of the share of the height.
function frame(title,x,y,read){
  const b=box(title),said=element('div','read'),svg=node('svg',{viewBox:`0 0 ${W} ${H}`,role:'img','aria-label':title});
  b.append(said,svg);
  const part=v=>x.log?Math.log(v/x.lo)/Math.log(x.hi/x.lo):(v-x.lo)/(x.hi-x.lo||1);
  const sx=v=>L+(W-L-R)*part(v),sy=v=>H-B-(H-T-B)*(v-y.lo)/(y.hi-y.lo||1);
  for(const v of ticks(x.lo,x.hi,x.log))
    svg.append(node('line',{class:'grid',x1:sx(v),x2:sx(v),y1:T,y2:H-B}),node('text',{x:sx(v),y:H-B+14,'text-anchor':'middle'},label(v)));
  if(!y.rows)for(const v of ticks(y.lo,y.hi))
    svg.append(node('line',{class:'grid',x1:L,x2:W-R,y1:sy(v),y2:sy(v)}),node('text',{x:L-6,y:sy(v)+4,'text-anchor':'end'},label(v)));
  svg.append(node('text',{x:W-R,y:H-4,'text-anchor':'end'},x.unit));
  const middle=(H-B+T)/2;
  if(!y.rows)svg.append(node('text',{x:12,y:middle,'text-anchor':'middle',transform:`rotate(-90 12 ${middle})`},y.unit));
  const cursor=node('line',{class:'cursor',y1:T,y2:H-B});
  svg.addEventListener('pointermove',e=>{
    const r=svg.getBoundingClientRect(),px=(e.clientX-r.left)/r.width*W,py=(e.clientY-r.top)/r.height*H,p=clamp((px-L)/(W-L-R),0,1);
    const at=x.log?x.lo*(x.hi/x.lo)**p:x.lo+(x.hi-x.lo)*p;
    cursor.setAttribute('x1',sx(at));cursor.setAttribute('x2',sx(at));cursor.style.visibility='visible';
    said.textContent=read(at,clamp((H-B-py)/(H-T-B),0,.9999))});
  svg.addEventListener('pointerleave',()=>{cursor.style.visibility='hidden';said.textContent=''});
  return{box:b,svg,sx,sy,end:()=>svg.append(cursor)};
}
function key(b,names){
  const p=element('div','key');
  names.forEach((name,i)=>{const c=element('i','');c.style.background=colours[i];p.append(c,name)});
  b.append(p);
}
/// Line `i` of a plot.
function line(f,xs,ys,i){
  f.svg.append(...polylines(xs.map((x,k)=>[f.sx(x),ys[k]==null?null:f.sy(ys[k])]),{class:'line',stroke:colours[i]}));
}
/// A broken line from top to bottom, with its name beside it.
function mark(f,x,text){
  f.svg.append(node('line',{class:'mark',x1:f.sx(x),x2:f.sx(x),y1:T,y2:H-B}));
  if(text)f.svg.append(node('text',{x:f.sx(x)-4,y:H-B-6,'text-anchor':'end'},text));
}
/// @param sets  {name, points}, a point is [seconds, share of the requests that took no longer].
function cdf(title,sets,slo){
  sets=sets.filter(s=>s.points.length);
  if(!sets.length)return nothing(title,'no request got that far');
  const shown=sets.flatMap(s=>s.points.map(p=>Math.max(p[0],1e-4))).concat(slo==null?[]:[slo]);
  const lo=Math.min(...shown)/1.2,hi=Math.max(...shown)*1.2;
  const up_to=(points,v)=>{let share=0;for(const p of points){if(p[0]>v)break;share=p[1]}return share};
  const f=frame(title,{lo,hi,log:true,unit:'seconds'},{lo:0,hi:100,unit:'% of them at most that long'},
    v=>label(v)+' s: '+sets.map(s=>s.name+' '+(100*up_to(s.points,v)).toFixed(1)+' %').join(', '));
  if(slo!=null)mark(f,slo,'SLO');
  sets.forEach((s,i)=>line(f,s.points.map(p=>Math.max(p[0],lo)),s.points.map(p=>100*p[1]),i));
  key(f.box,sets.map(s=>s.name));
  f.end();
}
