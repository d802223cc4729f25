// The page of a cluster: what /cluster and /metrics say, once a second.
const ms=t=>t>0?(t<10?t.toFixed(1):t<1e4?Math.round(t):(t/1e3).toFixed(1)+' s')+(t<1e4?' ms':''):'–';
const some=t=>t===''||t==null?'–':esc(t);

/// Shows counts by time, and quantiles of them. `buckets`: [[upper bound in ms, count in this bucket]].
function show_distribution(id,buckets){
  const used=buckets.map((b,i)=>b[1]?i:-1).filter(i=>i>=0),total=buckets.reduce((a,b)=>a+b[1],0);
  $(id+'_note').textContent='';
  const shown=total?buckets.slice(Math.max(0,used[0]-1),used[used.length-1]+2):[];
  histogram(id,shown.map(([bound,count])=>({count,
    title:count+' up to '+(isFinite(bound)?num(bound)+' ms':'any time'),
    bound:isFinite(bound)?(bound>=1e3?bound/1e3+'s':bound+''):''})));
  if(!total)return;
  const quantile=p=>{let left=p*total,low=0;
    for(const [bound,count] of buckets){
      if(count>=left)return isFinite(bound)?low+(bound-low)*left/count:low;
      left-=count;low=bound}
    return low};
  $(id+'_note').textContent='ms; p50 '+ms(quantile(.5))+', p99 '+ms(quantile(.99))+', of '+num(total)+(memory.metrics.length<300?' since the start':' in 5 min');
}

// ---- what is remembered between polls, one entry a second ----
const memory={hit:[],running:[],waiting:[],metrics:[],l1:[],l2:[],l3:[],found:[[],[],[],[]],moved:[[],[],[],[],[]]};
const keep=(list,value,most)=>{list.push(value);if(list.length>most)list.shift()};
let before=null;const last={};
const sum=(rows,of)=>rows.reduce((all,r)=>all+of(r),0);
const lately=n=>'last '+(n<120?n+' s':Math.round(n/60)+' min');
/// Keeps how much each count has grown since the last poll.
function keep_growth(name,now){
  if(last[name])now.forEach((n,i)=>keep(memory[name][i],Math.max(0,n-last[name][i]),300));
  last[name]=now;
}
function growth(name,colours,unit){
  const top=Math.max(1,...memory[name].flat());
  lines(name,memory[name].map((values,i)=>({values,colour:colours[i]})),top,num(top)+unit+' a second',lately(memory[name][0].length));
}
function show_tiers(c){
  const share=(part,all)=>all?part/all:0,slots=sum(c.shards,s=>s.slots_total),ssd=sum(c.shards,s=>s.ssd_capacity_bytes);
  keep(memory.l2,share(slots-sum(c.shards,s=>s.slots_free),slots),300);
  keep(memory.l1,share(sum(c.devices,d=>d.blocks_used),sum(c.devices,d=>d.blocks)),300);
  keep(memory.l3,share(sum(c.shards,s=>s.ssd_bytes),ssd),300);
  $('l1_key').hidden=!c.devices.length;$('l3_key').hidden=!ssd;$('moved_part').hidden=!ssd&&!c.devices.length&&!c.paths.length;
  lines('tiers',[{values:memory.l2,colour:'accent'}].concat(c.devices.length?[{values:memory.l1,colour:'warm'}]:[],
    ssd?[{values:memory.l3,colour:'good'}]:[]),1,'100 %',lately(memory.l2.length));
  keep_growth('found',['hits_dram','hits_device','hits_ssd','hits_remote'].map(k=>sum(c.shards,s=>s[k])));
  growth('found',['accent','warm','good','far'],'');
  keep_growth('moved',[sum(c.devices,d=>d.stored_bytes),sum(c.devices,d=>d.loaded_bytes),sum(c.shards,s=>s.ssd_written_bytes),
    sum(c.shards,s=>s.ssd_read_bytes),sum(c.paths,p=>p.bytes)]);
  growth('moved',['warm','accent','good','cool','far'],'B');
}

function distribution(name,now,then){
  const of=text=>{const out=[];
    for(const line of text.split('\n'))if(line.startsWith(name+'_bucket{')){
      const bound=line.match(/le="([^"]+)"/)[1];
      out.push([bound=='+Inf'?Infinity:Math.round(bound*1e5)/100,+line.slice(line.lastIndexOf(' '))])}
    return out};
  const a=of(now),b=of(then);
  return a.map((x,i)=>[x[0],x[1]-(i?a[i-1][1]:0)-(b[i]?b[i][1]-(i?b[i-1][1]:0):0)]);
}
function show_metrics(text){
  const only=text.split('\n').filter(l=>l.startsWith('vllm:')&&l.includes('_bucket')).join('\n');
  keep(memory.metrics,only,300);
  const then=memory.metrics.length<300?'':memory.metrics[0];
  show_distribution('ttft',distribution('vllm:time_to_first_token_seconds',only,then));
  show_distribution('tbt',distribution('vllm:inter_token_latency_seconds',only,then));
}
function show(c){
  $('model').textContent=c.model;
  $('up').textContent='up '+(c.uptime_s<120?Math.floor(c.uptime_s)+' s':c.uptime_s<7200?Math.floor(c.uptime_s/60)+' min':
    Math.floor(c.uptime_s/3600)+' h');
  const k=c.counters;
  if(before&&k.prompt_tokens>before.prompt_tokens)
    keep(memory.hit,(k.cached_tokens-before.cached_tokens)/(k.prompt_tokens-before.prompt_tokens),300);
  before=k;
  keep(memory.running,c.requests.running,300);keep(memory.waiting,c.requests.waiting,300);
  lines('hit',[{values:memory.hit,colour:'accent'}],1,'100 %','last '+memory.hit.length+' seconds with prompts');
  const top=Math.max(1,...memory.running,...memory.waiting);
  lines('queues',[{values:memory.running,colour:'accent'},{values:memory.waiting,colour:'warm'}],top,top+' requests',lately(memory.running.length));
  show_tiers(c);
  const tiles=[['running',c.requests.running],['waiting',c.requests.waiting],['finished',k.finished],
    ['rejected',k.rejected_ttft+k.rejected_tbt+k.rejected_memory+k.rejected_unavailable],['failed',k.failed],['prompt tokens',k.prompt_tokens],
    ['from cache',k.prompt_tokens?(100*k.cached_tokens/k.prompt_tokens).toFixed(1)+' %':'–'],
    ['output tokens',k.output_tokens],['blocks indexed',c.index.blocks]];
  $('tiles').innerHTML=tiles.map(x=>'<div class="tile"><b>'+(typeof x[1]=='number'?num(x[1]):x[1])+'</b>'+x[0]+'</div>').join('');
  const a=c.admission;
  $('played_part').hidden=!a.played.length;
  $('rule').textContent=a.rule;
  table('played',[['with',p=>esc(p.with)],['inside both SLOs',p=>bar([[p.inside_slos,p.with==a.rule?'good':'accent']])],
    ['',p=>(100*p.inside_slos).toFixed(1)+' %',1]],a.played.concat(a.what_ifs),'');
  table('instances',[['instance',i=>esc(i.name)],['role',i=>esc(i.role)],['state',i=>i.away?esc('away: '+i.away):i.reason?esc(i.state+': '+i.reason):i.state],['running',i=>i.running,1],['waiting',i=>i.waiting,1],
    ['context tokens',i=>i.context_tokens?num(i.context_tokens):'–',1],['step',i=>ms(i.step_ms),1],
    ['load',i=>bar([[i.load,i.load>1?'warm':'good']])]],c.instances,'no instance has joined');
  table('shards',[['node',s=>esc(s.node)],['DRAM',s=>{const held=s.slots_total-s.slots_free-s.slots_committed+s.slots_pinned;
      return bar([[Math.max(0,held)/s.slots_total,'warm'],[Math.max(0,s.slots_committed-s.slots_pinned)/s.slots_total,'accent']])}],
    ['slots',s=>num(s.slots_total),1],['free',s=>num(s.slots_free),1],['on SSD',s=>s.ssd_capacity_bytes?num(s.ssd_blocks)+' = '+num(s.ssd_bytes)+'B of '+num(s.ssd_capacity_bytes)+'B':'–',1],
    ['written to SSD',s=>s.ssd_capacity_bytes?num(s.ssd_written_bytes)+'B':'–',1],
    ['read there',s=>s.ssd_capacity_bytes?num(s.ssd_read_bytes)+'B':'–',1],
    ['hits on the device',s=>c.devices.some(d=>d.node==s.node)?num(s.hits_device):'–',1],
    ['hits in DRAM',s=>num(s.hits_dram),1],['hits on SSD',s=>num(s.hits_ssd),1],['hits elsewhere',s=>num(s.hits_remote),1],
    ['misses',s=>num(s.misses),1],
    ['left the SSD',s=>s.ssd_capacity_bytes?num(s.ssd_evictions)+(s.ssd_copies_dropped?', '+num(s.ssd_copies_dropped)+' kept elsewhere':''):'–',1],['evicted',s=>num(s.evictions)+(s.evictions_lost?', '+num(s.evictions_lost)+' for good':''),1]],c.shards,'no node holds KV blocks');
  $('ranks_part').hidden=!c.ranks.length;
  table('ranks',[['group',r=>esc(r.node)],['process',r=>esc(r.process)],['at',r=>some(r.at)],['layers',r=>esc(r.layers)],
    ['device',r=>esc(r.device)]],c.ranks,'');
  $('device_part').hidden=!c.devices.length;
  table('devices',[['node',d=>esc(d.node)],['KV',d=>bar([[d.blocks_used/d.blocks,'accent']])],['blocks',d=>num(d.blocks),1],
    ['context found there',d=>num(d.hit_tokens)+' tokens',1],['loaded from the host',d=>num(d.loaded_tokens)+' tokens = '+num(d.loaded_bytes)+'B',1],
    ['written back',d=>num(d.stored_bytes)+'B',1],['sent by NICs',d=>d.unreached?'–':num(d.sent_bytes)+'B',1],['not written',d=>num(d.unwritten_blocks)+(d.lost_blocks?', '+num(d.lost_blocks)+' lost':''),1]],c.devices,'');
  table('paths',[['from',p=>esc(p.node)],['to',p=>esc(p.peer)],['path',p=>esc(p.path)],['bytes',p=>num(p.bytes),1],
    ['transfers',p=>num(p.transfers),1],['retries',p=>p.retries,1],['bad checksums',p=>p.checksum_failures,1]],c.paths,
    'nothing: blocks of one process are handed over where they lie');
  table('rails',[['node',r=>esc(r.node)],['rail',r=>esc(r.rail)],['address',r=>esc(r.address)],['port',r=>r.up?'up':'down'],
    ['bytes',r=>num(r.bytes),1],['slices',r=>num(r.slices),1],['mean',r=>ms(r.mean_ms),1],['retries',r=>r.retries,1],
    ['broken',r=>r.failures,1],['last error',r=>esc(r.last_error)]],c.rails,'no RDMA device is in use');
  table('recent',[['request',r=>esc(r.request)],['prefill',r=>esc(r.prefill)],['decode',r=>esc(r.decode)],
    ['prompt',r=>r.prompt_tokens,1],['cached',r=>r.ttft_ms?r.cached_tokens:'–',1],['fetched from',r=>some(r.source)],
    ['output',r=>r.output_tokens||'–',1],['TTFT',r=>ms(r.ttft_ms),1],['predicted',r=>ms(r.predicted_ttft_ms),1],
    ['computing',r=>ms(r.prefill_ms),1]],
    c.recent.slice(0,20),'no request yet');
}

// ---- polling ----
let api_key=sessionStorage.getItem('mooncaf key')||'';
async function get(path){
  const r=await fetch(path,api_key?{headers:{Authorization:'Bearer '+api_key}}:{});
  if(r.status==401){
    api_key=prompt('This server asks for its API key')||'';sessionStorage.setItem('mooncaf key',api_key);throw 'the API key is wrong';
  }
  if(!r.ok)throw 'no conductor answers';
  return r;
}
async function poll(){
  try{
    show(await(await get('/cluster')).json());show_metrics(await(await get('/metrics')).text());
    $('state').textContent='live';$('state').className='';
  }catch(e){$('state').textContent=typeof e=='string'?e:'disconnected';$('state').className='lost'}
  setTimeout(poll,1000);
}
poll();
