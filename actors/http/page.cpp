#include "actors/http/page.hpp"

namespace mooncaf {

namespace {

constexpr std::string_view html = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>mooncaf</title><style>
:root{color-scheme:light dark;--line:#8884;--soft:#8882;--ink:light-dark(#1b2733,#dde6ee);--accent:#2f81f7;--warm:#e3872d;--good:#2ea36b}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);margin:0 auto;max-width:72rem;padding:1rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1rem;margin:1.6rem 0 .4rem}
header{display:flex;gap:1rem;align-items:baseline;flex-wrap:wrap}#state{margin-left:auto}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin-top:1rem}
.tile{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .7rem}.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}td,th{padding:.25rem .6rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
.scroll{overflow-x:auto}.bar{background:var(--soft);border-radius:.25rem;height:.7rem;min-width:8rem;display:flex;overflow:hidden}.bar i{height:100%}
svg{width:100%;height:7rem;border:1px solid var(--line);border-radius:.5rem}.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(18rem,1fr));gap:1rem}
small{opacity:.7}.lost{color:#d33;font-weight:600}
</style></head><body>
<header><h1>mooncaf</h1><span id="model"></span><small id="up"></small><span id="state">connecting</span></header>
<div class="tiles" id="tiles"></div>
<div class="two"><div><h2>Prefix hit rate <small>share of prompt tokens, last minutes</small></h2><svg id="hit" viewBox="0 0 300 100" preserveAspectRatio="none"></svg></div>
<div><h2>TTFT <small>recent requests, ms, sorted</small></h2><svg id="ttft" viewBox="0 0 300 100" preserveAspectRatio="none"></svg></div></div>
<h2>Instances</h2><div class="scroll"><table id="instances"></table></div>
<h2>Cache <small>slots by state, blocks on SSD</small></h2><div class="scroll"><table id="shards"></table></div>
<h2>Paths</h2><div class="scroll"><table id="paths"></table></div>
<h2>Recent placements</h2><div class="scroll"><table id="recent"></table></div>
<script>
const $=i=>document.getElementById(i),esc=t=>String(t).replace(/[&<>"]/g,c=>({'&':'&amp;','<':'&lt;','>':'&gt;','"':'&quot;'}[c]));
const num=n=>n>=1e9?(n/1e9).toFixed(2)+' G':n>=1e6?(n/1e6).toFixed(2)+' M':n>=1e4?(n/1e3).toFixed(1)+' k':String(Math.round(n*10)/10);
const table=(id,head,rows)=>$(id).innerHTML='<tr>'+head.map(h=>'<th>'+h+'</th>').join('')+'</tr>'+rows.map(r=>'<tr>'+r.map(c=>'<td>'+c+'</td>').join('')+'</tr>').join('');
const line=(id,values,top)=>{const n=values.length;$(id).innerHTML=n<2?'':'<polyline fill="none" stroke="var(--accent)" stroke-width="2" vector-effect="non-scaling-stroke" points="'+values.map((v,i)=>(300*i/(n-1)).toFixed(1)+','+(96-92*v/(top||1)).toFixed(1)).join(' ')+'"/>'};
const hits=[];let before=null;
function show(c){
 $('model').textContent=c.model;$('up').textContent='up '+Math.floor(c.uptime_s/60)+' min';
 const k=c.counters;
 if(before&&k.prompt_tokens>before.prompt_tokens){hits.push((k.cached_tokens-before.cached_tokens)/(k.prompt_tokens-before.prompt_tokens));if(hits.length>180)hits.shift()}
 before=k;line('hit',hits,1);
 const t=c.recent.map(r=>r.ttft_ms).filter(x=>x>0).sort((a,b)=>a-b);line('ttft',t,t[t.length-1]);
 const tiles=[['requests now',c.requests_live],['finished',k.finished],['rejected',k.rejected_ttft+k.rejected_tbt+k.rejected_unavailable],['prompt tokens',k.prompt_tokens],['from cache',k.prompt_tokens?(100*k.cached_tokens/k.prompt_tokens).toFixed(1)+' %':'-'],['output tokens',k.output_tokens],['TTFT p50',t.length?num(t[t.length>>1])+' ms':'-'],['indexed blocks',c.index.blocks]];
 $('tiles').innerHTML=tiles.map(x=>'<div class="tile"><b>'+(typeof x[1]=='number'?num(x[1]):x[1])+'</b>'+x[0]+'</div>').join('');
 table('instances',['instance','role','running','waiting','context','step','load'],c.instances.map(i=>[esc(i.name),i.role,i.running,i.waiting,num(i.context_tokens),i.step_ms.toFixed(2)+' ms','<div class="bar"><i style="width:'+Math.min(100,100*i.load)+'%;background:'+(i.load>1?'var(--warm)':'var(--good)')+'"></i></div>']));
 table('shards',['node','DRAM','pinned','committed','free','on SSD','hits DRAM / SSD / remote','misses','evicted'],c.shards.map(s=>{const p=v=>100*v/s.slots_total+'%';return[esc(s.node),'<div class="bar"><i style="width:'+p(s.slots_pinned+s.slots_reserved)+';background:var(--warm)"></i><i style="width:'+p(s.slots_committed-s.slots_pinned)+';background:var(--accent)"></i></div>',s.slots_pinned,s.slots_committed,s.slots_free,s.ssd_blocks,s.hits_dram+' / '+s.hits_ssd+' / '+s.hits_remote,s.misses,s.evictions]}));
 table('paths',['from','to','path','bytes','transfers','retries','bad checksums'],c.paths.map(p=>[esc(p.node),esc(p.peer),p.path,num(p.bytes),num(p.transfers),p.retries,p.checksum_failures]));
 table('recent',['request','prefill','decode','prompt','cached','fetched from','output','TTFT','predicted'],c.recent.slice(0,20).map(r=>[r.request,esc(r.prefill),esc(r.decode),r.prompt_tokens,r.cached_tokens,esc(r.source)||'-',r.output_tokens,r.ttft_ms.toFixed(1)+' ms',r.predicted_ttft_ms.toFixed(1)+' ms']));
}
async function poll(){try{const r=await fetch('/cluster');if(!r.ok)throw 0;show(await r.json());$('state').textContent='live';$('state').className=''}catch(e){$('state').textContent='disconnected';$('state').className='lost'}setTimeout(poll,1000)}
poll();
</script></body></html>
)page";

}  // namespace

std::string_view live_page() noexcept { return html; }

}  // namespace mooncaf
