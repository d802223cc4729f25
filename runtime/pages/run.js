// The plots of one run: `data` as `report_html.cpp` writes it.
const span={lo:data.at[0],hi:data.at[data.at.length-1],unit:'seconds since the trace began'};
const row=t=>{let k=0;while(k+1<data.at.length&&data.at[k]<t)k++;return k};
const died=t=>data.deaths.filter(d=>Math.abs(d[0]-t)<(span.hi-span.lo)*.008).map(d=>'; '+d[1]+' died').join('');
function over(title,unit,sets,none,top){
  const most=Math.max(...sets.flatMap(s=>s.values.filter(v=>v!=null)),0);
  if(data.at.length<2||most<=0)return nothing(title,data.at.length<2?'over within a second':none);
  const hi=top||most*1.05;
  const f=frame(title,span,{lo:0,hi,unit},t=>{const k=row(t);return label(data.at[k])+' s: '+sets.map(s=>s.name+' '+(s.values[k]==null?'–':label(s.values[k]))).join(', ')+died(t)});
  for(const m of data.marks)if(m>=span.lo&&m<=span.hi)mark(f,m);
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
const seconds=data.at.map((t,k)=>k?t-data.at[k-1]:data.at[1]-data.at[0]);
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
