// The plots of a plan: `data` is what `mooncaf plan --json` writes.
const planned=data.planned_load,carried=data.carries[0],money=data.currency;
const span=(values,room)=>({lo:0,hi:Math.max(...values)*room});
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
  for(const [v] of marks)mark(f,v);
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
