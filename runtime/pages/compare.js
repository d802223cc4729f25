// The plots of several runs, a line for each: `data.runs` as `compare_report.cpp` writes it.
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
const rate=r=>r.rejected.map((v,k)=>v/(k?r.at[k]-r.at[k-1]:r.at[0]||1));
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
