// The page of an object store: what /store/figures says, once a second.
const size=n=>{let u=0;while(n>=1024&&u<5){n/=1024;u++}return (u?n.toFixed(1):n)+' '+['B','KiB','MiB','GiB','TiB','PiB'][u]};
const percent_of=x=>(100*x).toFixed(1)+' %';
const series={hit:[],fill:[],evictions:[],objects:[],copies:[]},kept=240;
let before=null;
function draw(id,top){
  const values=series[id],last=values[values.length-1];
  lines(id,[{values,colour:'accent'}],top||Math.max(1,...values)*1.1,last==null?'–':top?percent_of(last):num(last),'',kept);
}
function push(id,v){series[id].push(v);if(series[id].length>kept)series[id].shift()}
function show(f){
  const c=f.counts,used=c.capacity_bytes-c.free_bytes,asked=c.hits+c.misses;
  const tiles=[['Objects',c.objects],['Their bytes',size(c.object_bytes)],['Memory mounted',size(c.capacity_bytes)],
    ['In use',c.capacity_bytes?percent_of(used/c.capacity_bytes):'–'],['Hit rate',asked?percent_of(c.hits/asked):'–'],['Evicted',c.evictions],['Put again after it',c.regretted],
    ['Refused puts',c.refused],['Expired',c.expired],['Lost with a segment',c.lost],['Puts under way',c.reserved],['Resting',size(c.resting_bytes)],['Replicas',c.replicas],
    ['Known from before',c.recovered],['Moved',c.moved]];
  $('tiles').innerHTML=tiles.map(([n,v])=>'<div class="tile">'+n+'<b>'+(typeof v=='number'?num(v):v)+'</b></div>').join('');
  const now=performance.now(),past=before&&before.c.hits<=c.hits?before:null,seconds=past?(now-past.now)/1e3:0;
  const fresh=past?asked-past.c.hits-past.c.misses:0;
  push('hit',fresh>0?(c.hits-past.c.hits)/fresh:null);
  push('fill',c.capacity_bytes?used/c.capacity_bytes:null);
  push('evictions',past?(c.evictions-past.c.evictions)/seconds:null);
  push('objects',c.objects);
  push('copies',c.objects?c.replicas/c.objects:null);
  before={c,now};
  draw('hit',1);draw('fill',1);draw('evictions');draw('objects');draw('copies');
  table('segments',[['Segment',s=>esc(s.name)+(s.medium=='ssd'?' (SSD)':'')+
      (s.withheld_bytes?' (KV blocks have '+size(s.withheld_bytes)+')':'')+(s.draining?' (draining)':'')],
    ['Host',s=>esc(s.host)],['Release',s=>(s.release?esc(s.release)+', ':'')+'protocol '+s.protocol],['Size',s=>size(s.bytes),1],['In use',s=>percent_of(s.used_bytes/s.bytes),1],
    ['',s=>bar([[s.used_bytes/s.bytes,'accent']])]],f.segments,'no segment is mounted');
  table('hottest',[['Object',h=>'<div class="name">'+(h.tenant?esc(h.tenant)+': ':'')+esc(h.key)+'</div>'],
    ['Reads in a second',h=>h.reads_per_s.toFixed(1),1],['Size',h=>size(h.bytes),1],['Replicas',h=>h.replicas,1]],f.hottest,
    'nothing was read lately');
  table('times',[['Question',t=>esc(t.question)],['Answered',t=>num(t.count),1],['Mean',t=>(t.mean_ns/1e3).toFixed(1)+' µs',1],
    ['99 % within',t=>t.p99_ns==null?'more than 20 s':t.p99_ns/1e3+' µs',1]],f.times,'nothing was asked');
}
async function poll(){
  try{
    const token=$('token').value,answer=await fetch('store/figures',{headers:token?{Authorization:'Bearer '+token}:{}});
    $('ask').hidden=answer.status!==401&&!token;
    if(!answer.ok)throw new Error(answer.status===401?'a token is needed':'the directory does not answer');
    show(await answer.json());$('state').textContent='live';$('state').className='';
  }catch(e){$('state').textContent=e.message;$('state').className='lost';before=null}
  setTimeout(poll,1000);
}
poll();
