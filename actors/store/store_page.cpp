#include "actors/store/store_page.hpp"

#include <nlohmann/json.hpp>

namespace mooncaf::store {

namespace {

constexpr std::string_view html = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>mooncaf store</title><style>
:root{color-scheme:light dark;--line:#8884;--soft:#8882;--ink:#1b2733;--accent:#2f81f7;--warm:#e3872d}
@media(prefers-color-scheme:dark){:root{--ink:#dde6ee}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);margin:0 auto;max-width:80rem;padding:1rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1rem;margin:1.6rem 0 .4rem}
header{display:flex;gap:1rem;align-items:baseline}#state{margin-left:auto}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));gap:.6rem;margin-top:1rem}
.tile{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .7rem}
.tile b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums;white-space:nowrap}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .9rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
.n{text-align:right}.key{max-width:min(60ch,60vw);overflow:hidden;text-overflow:ellipsis}.scroll{overflow-x:auto}.lost{color:#d33;font-weight:600}
.bar{background:var(--soft);border-radius:.25rem;height:.7rem;min-width:8rem;overflow:hidden}.bar i{display:block;height:100%;background:var(--accent)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:0 1.2rem}
svg{display:block;width:100%;height:7rem;border:1px solid var(--line);border-radius:.5rem}svg text{font-size:11px;fill:currentColor;opacity:.75}
small{opacity:.7;font-weight:400}
</style></head><body>
<header><h1>mooncaf store</h1><span id="state">connecting</span></header>
<p id="ask" hidden><label>Token <input id="token" type="password" autocomplete="off"></label></p>
<div class="tiles" id="tiles"></div>
<div class="charts">
<div><h2>Hit rate <small>of keys that were asked for</small></h2><svg id="hit"></svg></div>
<div><h2>Memory in use <small>share of what is lent</small></h2><svg id="fill"></svg></div>
<div><h2>Evictions <small>objects in a second</small></h2><svg id="evictions"></svg></div>
<div><h2>Objects</h2><svg id="objects"></svg></div>
<div><h2>Replicas <small>in memory, for each object that is there</small></h2><svg id="copies"></svg></div>
</div>
<h2>Segments</h2><div class="scroll"><table id="segments"></table></div>
<h2>Read most <small>lately: a read counts half after ten seconds</small></h2><div class="scroll"><table id="hottest"></table></div>
<h2>The directory's work <small>since it began</small></h2><div class="scroll"><table id="times"></table></div>
<script>
const $=i=>document.getElementById(i);
const esc=t=>String(t).replace(/[&<>"]/g,c=>({'&':'&amp;','<':'&lt;','>':'&gt;','"':'&quot;'}[c]));
const size=n=>{let u=0;while(n>=1024&&u<5){n/=1024;u++}return (u?n.toFixed(1):n)+' '+['B','KiB','MiB','GiB','TiB','PiB'][u]};
const percent=x=>(100*x).toFixed(1)+' %';
const row=(cells,tag='td')=>'<tr>'+cells.map(([t,n])=>'<'+tag+(n?' class="n">':'>')+t+'</'+tag+'>').join('')+'</tr>';
const series={hit:[],fill:[],evictions:[],objects:[],copies:[]},kept=240;
let before=null;
function draw(id,top){
  const all=series[id],most=top||Math.max(1,...all.filter(v=>v!=null))*1.1;
  const at=(v,i)=>(i*600/(kept-1)).toFixed(1)+','+(96-90*v/most).toFixed(1);
  const runs=[];let run=[];
  all.forEach((v,i)=>{if(v==null){if(run.length)runs.push(run);run=[]}else run.push(at(v,i))});
  if(run.length)runs.push(run);
  const last=all[all.length-1];
  $(id).setAttribute('viewBox','0 0 600 100');$(id).setAttribute('preserveAspectRatio','none');
  $(id).innerHTML=runs.map(r=>'<polyline fill="none" stroke="var(--accent)" stroke-width="2" points="'+r.join(' ')+'"/>').join('')
    +'<text x="6" y="14">'+(last==null?'–':top?percent(last):Math.round(last*10)/10)+'</text>';
}
function push(id,v){series[id].push(v);if(series[id].length>kept)series[id].shift()}
function show(f){
  const c=f.counts,used=c.capacity_bytes-c.free_bytes,asked=c.hits+c.misses;
  const tiles=[['Objects',c.objects],['Their bytes',size(c.object_bytes)],['Memory lent',size(c.capacity_bytes)],
    ['In use',c.capacity_bytes?percent(used/c.capacity_bytes):'–'],['Hit rate',asked?percent(c.hits/asked):'–'],['Evicted',c.evictions],['Put again after it',c.regretted],
    ['Refused puts',c.refused],['Expired',c.expired],['Lost with a segment',c.lost],['Puts under way',c.reserved],['Resting',size(c.resting_bytes)],['Replicas',c.replicas],
    ['Known from before',c.recovered],['Moved',c.moved]];
  $('tiles').innerHTML=tiles.map(([n,v])=>'<div class="tile">'+n+'<b>'+v+'</b></div>').join('');
  const now=performance.now(),past=before&&before.c.hits<=c.hits?before:null,seconds=past?(now-past.now)/1e3:0;
  const fresh=past?asked-past.c.hits-past.c.misses:0;
  push('hit',fresh>0?(c.hits-past.c.hits)/fresh:null);
  push('fill',c.capacity_bytes?used/c.capacity_bytes:null);
  push('evictions',past?(c.evictions-past.c.evictions)/seconds:null);
  push('objects',c.objects);
  push('copies',c.objects?c.replicas/c.objects:null);
  before={c,now};
  draw('hit',1);draw('fill',1);draw('evictions');draw('objects');draw('copies');
  $('segments').innerHTML=row([['Segment'],['Host'],['Size',1],['In use',1],['']],'th')+f.segments.map(s=>row([[esc(s.name)+(s.medium=='ssd'?' (SSD)':'')+(s.withheld_bytes?' (KV blocks have '+size(s.withheld_bytes)+')':'')+(s.draining?' (draining)':'')],[esc(s.host)],
    [size(s.bytes),1],[percent(s.used_bytes/s.bytes),1],['<div class="bar"><i style="width:'+100*s.used_bytes/s.bytes+'%"></i></div>']])).join('');
  $('hottest').innerHTML=row([['Object'],['Reads in a second',1],['Size',1],['Replicas',1]],'th')+f.hottest.map(h=>row([
    ['<div class="key">'+(h.tenant?esc(h.tenant)+': ':'')+esc(h.key)+'</div>'],[h.reads_per_s.toFixed(1),1],[size(h.bytes),1],[h.replicas,1]])).join('');
  $('times').innerHTML=row([['Question'],['Answered',1],['Mean',1],['99 % within',1]],'th')+f.times.map(t=>row([[esc(t.question)],[t.count,1],
    [(t.mean_ns/1e3).toFixed(1)+' µs',1],[t.p99_ns==null?'more than 20 s':t.p99_ns/1e3+' µs',1]])).join('');
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
</script></body></html>
)page";

}  // namespace

std::string_view store_page() noexcept { return html; }

result<store_picture> look_at(store_client& store) {
  constexpr std::size_t hottest_shown = 20;
  auto figures = store.figures();
  if (!figures) return fail(figures.error());
  auto segments = store.lent();
  if (!segments) return fail(segments.error());
  auto hottest = store.hottest();
  if (!hottest) return fail(hottest.error());
  if (hottest->size() > hottest_shown) hottest->resize(hottest_shown);
  return store_picture{*figures, std::move(*segments), std::move(*hottest)};
}

nlohmann::json as_json(const store_picture& picture) {
  using nlohmann::json;
  const auto& figures = picture.figures;
  const auto& c = figures.counts;
  json times = json::array(), lent = json::array(), hottest = json::array();
  for (std::size_t i = 1; i < figures.times.size(); ++i) {
    const auto& t = figures.times[i];
    std::uint64_t count = 0, seen = 0;
    for (const auto n : t.counts) count += n;
    if (count == 0) continue;
    json p99;
    for (std::size_t b = 0; b < t.bounds.size() && p99.is_null(); ++b)
      if ((seen += t.counts[b]) * 100 >= count * 99) p99 = t.bounds[b];
    times.push_back({{"question", store_wire::name_of(static_cast<store_wire::op>(i))},
                     {"count", count},
                     {"mean_ns", static_cast<double>(t.total_ns) / static_cast<double>(count)},
                     {"p99_ns", p99}});
  }
  for (const auto& h : picture.hottest)
    hottest.push_back({{"key", h.object.key},
                       {"tenant", h.tenant},
                       {"bytes", h.object.size},
                       {"replicas", h.object.replicas},
                       {"reads_per_s", h.object.reads_per_s}});
  for (const auto& s : picture.segments)
    lent.push_back({{"name", s.view.name},
                    {"host", s.view.host},
                    {"bytes", s.view.bytes},
                    {"used_bytes", s.view.bytes - s.view.free_bytes},
                    {"medium", to_string(s.view.kind)},
                    {"withheld_bytes", s.view.withheld_bytes},
                    {"draining", s.view.draining}});
  return {{"counts",
           {{"objects", c.objects},
            {"replicas", c.replicas},
            {"reserved", c.reserved},
            {"object_bytes", c.object_bytes},
            {"capacity_bytes", c.total_bytes},
            {"free_bytes", c.free_bytes},
            {"resting_bytes", c.quarantined_bytes},
            {"hits", c.hits},
            {"misses", c.misses},
            {"evictions", c.evictions},
            {"regretted", c.regretted},
            {"expired", c.expired},
            {"lost", c.lost},
            {"refused", c.refused},
            {"moved", c.moved},
            {"recovered", c.recovered}}},
          {"times", times},
          {"segments", lent},
          {"hottest", hottest}};
}

}  // namespace mooncaf::store
