// Tables and tiles of the pages that follow a server.
const esc=text=>String(text).replace(/[&<>"]/g,c=>({'&':'&amp;','<':'&lt;','>':'&gt;','"':'&quot;'}[c]));
/// A count in a few digits; the space in front of its unit does not break.
const num=n=>n>=1e9?(n/1e9).toFixed(2)+'\u00a0G':n>=1e6?(n/1e6).toFixed(2)+'\u00a0M':n>=1e4?(n/1e3).toFixed(1)+'\u00a0k':
  String(Math.round(n*10)/10);

/// @param columns  [title, HTML of a row's cell, 1 if it is a number]. @param none  what is said where there is no row.
function table(id,columns,rows,none){
  const tag=(name,column,html)=>'<'+name+(column[2]?' class="n">':'>')+html+'</'+name+'>';
  $(id).innerHTML=!rows.length?'<div class="none">'+none+'</div>':'<table><tr>'+columns.map(c=>tag('th',c,c[0])).join('')
    +'</tr>'+rows.map(r=>'<tr>'+columns.map(c=>tag('td',c,c[1](r))).join('')+'</tr>').join('')+'</table>';
}
/// @param parts  [share of the bar, name of a colour].
const bar=parts=>'<div class="bar">'+parts.map(([share,colour])=>
  '<i style="width:'+Math.min(100,100*share)+'%;background:var(--'+colour+')"></i>').join('')+'</div>';
