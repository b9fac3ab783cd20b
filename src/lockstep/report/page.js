const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function draw() {
  const line = css("--line"), clear = "rgba(0,0,0,0)";
  const axis = {gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true};
  for (const plot of document.querySelectorAll(".plot")) {
    const {data, layout} = JSON.parse(plot.nextElementSibling.textContent);
    Plotly.react(plot, data, {...layout, paper_bgcolor: clear, plot_bgcolor: clear,
      font: {color: css("--ink"), size: 12, family: "system-ui, sans-serif"},
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis}},
      {responsive: true, displayModeBar: false});
  }
}
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
