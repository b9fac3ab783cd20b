// A Plotly picture with its own controls. The controls move at once; Python computes the figure and
// sends it back. Only one request is under way at a time, so a drag never queues up old positions.
const CLEAR = "rgba(0,0,0,0)";

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Plotly cannot read every notation of a colour, so paint a point and read its colour.
function numbers(colour) {
  const canvas = element("canvas", {width: 1, height: 1});
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

// Derive the colours from the page's text, so that they fit light and dark pages.
function themed(layout, host) {
  const text = numbers(getComputedStyle(host).color);
  const ink = `rgb(${text})`, line = `rgba(${text}, 0.2)`;
  // The colours of sliders, boxes and lists, which the browser draws.
  host.style.colorScheme = Math.max(...text) > 128 ? "dark" : "light";
  const axis = {gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true};
  const narrow = host.clientWidth < 520, touch = matchMedia("(pointer: coarse)").matches;
  const result = {
    margin: {l: 10, r: 12, t: 34, b: 10},
    legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom"},
    ...layout,
    autosize: true, paper_bgcolor: CLEAR, plot_bgcolor: CLEAR,
    font: {color: ink, size: narrow ? 11 : 13, family: "system-ui, sans-serif"},
    hoverlabel: {font: {family: "system-ui, sans-serif"}},
  };
  delete result.width;
  for (const name of ["xaxis", "yaxis", ...Object.keys(layout).filter(k => /^[xy]axis\d/.test(k))]) {
    result[name] = {...axis, ...layout[name]};
  }
  for (const name of Object.keys(layout).filter(k => /^scene\d*$/.test(k))) {
    // Keep the view that the learner turned while sliders move.
    const scene = {dragmode: touch ? false : "turntable", uirevision: true, ...layout[name]};
    const camera = scene.camera;
    if (narrow && camera?.eye) {
      const back = Object.fromEntries(Object.entries(camera.eye).map(([k, at]) => [k, 1.3 * at]));
      scene.camera = {...camera, eye: back};  // otherwise the axis labels would be cut off
    }
    for (const one of ["xaxis", "yaxis", "zaxis"]) {
      scene[one] = {gridcolor: line, zerolinecolor: line, backgroundcolor: CLEAR, ...scene[one]};
    }
    result[name] = scene;
  }
  if (!layout.dragmode) result.dragmode = touch ? false : "zoom";
  return result;
}

function slider(control, changed) {
  const last = control.shown.length - 1;
  const shown = element("output", {textContent: control.shown[control.at]});
  const input = element("input", {type: "range", min: 0, max: last, step: 1, value: control.at,
    name: control.name});
  input.setAttribute("aria-label", control.label);
  input.addEventListener("input", () => {
    shown.textContent = control.shown[input.value];
    input.setAttribute("aria-valuetext", control.shown[input.value]);
    changed(control.name, Number(input.value));
  });
  return element("label", {className: "control"},
    element("span", {}, control.label, shown), input);
}

function choice(control, changed) {
  const input = element("select", {name: control.name});
  control.shown.forEach((text, place) => input.append(element("option", {value: place, textContent: text})));
  input.value = control.at;
  input.addEventListener("change", () => changed(control.name, Number(input.value)));
  return element("label", {className: "control"}, element("span", {}, control.label), input);
}

function toggle(control, changed) {
  const input = element("input", {type: "checkbox", name: control.name, checked: control.at === 1});
  input.addEventListener("change", () => changed(control.name, input.checked ? 1 : 0));
  return element("label", {className: "control switch"}, input, element("span", {}, control.label));
}

const KINDS = {slider, choice, toggle};

// Play frames in the page, without asking Python.
function player(draw) {
  const button = element("button", {type: "button", textContent: "Play"});
  const seek = element("input", {type: "range", min: 0, value: 0, step: 1, name: "frame"});
  seek.setAttribute("aria-label", "Time");
  const bar = element("div", {className: "player", hidden: true}, button, seek);
  let frames = [], pause = 50, timer = null, begun = 0, from = 0;
  const show = place => { seek.value = place; draw(frames[place]); };
  const stop = () => { cancelAnimationFrame(timer); timer = null; button.textContent = "Play"; };
  const tick = now => {
    const place = Math.min(frames.length - 1, from + Math.floor((now - begun) / pause));
    if (Number(seek.value) !== place) show(place);
    if (place === frames.length - 1) stop();
    else timer = requestAnimationFrame(tick);
  };
  button.addEventListener("click", () => {
    if (timer) { stop(); return; }
    from = Number(seek.value) >= frames.length - 1 ? 0 : Number(seek.value);
    begun = performance.now();
    button.textContent = "Pause";
    timer = requestAnimationFrame(tick);
  });
  seek.addEventListener("input", () => { stop(); show(Number(seek.value)); });
  const load = figure => {
    stop();
    frames = figure.frames || [];
    pause = figure.pause || 50;
    bar.hidden = !frames.length;
    seek.max = Math.max(0, frames.length - 1);
    seek.value = seek.max;
  };
  return {bar, load, stop};
}

const isLine = trace => (trace.type || "scatter") === "scatter";

// Return the background as an image in the units of the axes.
function painted({values, rows, columns, colours, x, y}) {
  const canvas = element("canvas", {width: columns, height: rows});
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  [...atob(values)].forEach((value, k) => {
    const row = rows - 1 - Math.floor(k / columns);
    image.data.set([...colours[value.charCodeAt(0)], 255], 4 * (row * columns + k % columns));
  });
  context.putImageData(image, 0, 0);
  const wide = (x[1] - x[0]) / (columns - 1), high = (y[1] - y[0]) / (rows - 1);
  return {source: canvas.toDataURL(), xref: "x", yref: "y", layer: "below", sizing: "stretch",
    x: x[0] - wide / 2, y: y[1] + high / 2, sizex: wide * columns, sizey: high * rows};
}

// Keep a figure as text to compare it later: Plotly modifies the object that it gets.
const worded = figure => ({
  layout: JSON.stringify([figure.layout, figure.ground]),
  data: (figure.data || []).map(({x, y, ...rest}) => [JSON.stringify([x, y]), JSON.stringify(rest)]),
});

// Return the lines that moved if nothing else changed since the last figure; otherwise null.
function moved(figure, before, now) {
  const axes = [figure.layout?.xaxis, figure.layout?.yaxis];
  if (!figure.data || before.data.length !== now.data.length || before.layout !== now.layout
    || !axes.every(axis => axis?.range)) return null;
  if (now.data.some(([, rest], k) => rest !== before.data[k][1])) return null;
  if (!figure.data.every(isLine)) return null;
  return [...now.data.keys()].filter(k => now.data[k][0] !== before.data[k][0]);
}

function render({model, el}) {
  const plot = element("div", {className: "plot"});
  const note = element("p", {className: "note"});
  const controls = element("div", {className: "controls"});
  const host = element("div", {className: "picture"});
  let base = null, words = {data: []}, busy = false, waiting = null;
  plot.style.height = `${model.get("height")}px`;

  // Copy the traces: Plotly writes the values of a frame into them.
  const paint = (data, layout) => globalThis.Plotly.react(plot, data.map(one => ({...one})),
    {...themed(layout, host), images: base.ground ? [painted(base.ground)] : []},
    {responsive: true, displayModeBar: false, doubleClick: "reset"});
  // Redraw only these lines. Traces other than lines would vanish.
  const move = (traces, data) => globalThis.Plotly.animate(plot, {data, traces},
    {mode: "immediate", transition: {duration: 0}, frame: {duration: 0, redraw: false}});
  const play = player(frame => {
    if (!frame) return;
    words = {data: []};  // the drawing no longer shows the figure
    const cut = place => ({x: base.data[place].x.slice(0, frame.points),
      y: base.data[place].y.slice(0, frame.points)});
    const data = frame.data || frame.traces.map(cut);
    if (base.data.every(isLine) && !frame.layout) {
      move(frame.traces, data);
      return;
    }
    const whole = base.data.map((trace, place) => {
      const part = frame.traces.indexOf(place);
      return part < 0 ? trace : {...trace, ...data[part]};
    });
    paint(whole, {...base.layout, ...frame.layout});
  });
  const draw = (anew = true) => {
    const before = words;
    base = model.get("figure");
    words = worded(base);
    note.textContent = base.note || "";
    note.hidden = !base.note;
    play.load(base);
    const done = () => { host.dataset.turn = base.turn; };
    const lines = anew ? null : moved(base, before, words);
    const points = place => ({x: base.data[place].x, y: base.data[place].y});
    if (lines && lines.length) Promise.resolve(move(lines, lines.map(points))).then(done);
    else if (base.data && !lines) Promise.resolve(paint(base.data, base.layout || {})).then(done);
    else done();
  };
  const send = () => {
    busy = true;
    model.set("places", {...waiting});
    waiting = null;
    model.save_changes();
  };
  const places = {...model.get("places")};
  const changed = (name, place) => {
    places[name] = place;
    places.turn = (places.turn || 0) + 1;
    waiting = places;
    if (!busy) send();
  };
  const answered = () => {
    draw(false);
    busy = false;
    if (waiting) send();
  };
  for (const control of model.get("controls")) {
    controls.append(KINDS[control.kind]({...control, at: places[control.name]}, changed));
  }
  host.append(...(controls.children.length ? [controls] : []), plot, play.bar, note);
  el.append(host);
  model.on("change:figure", answered);
  // The element has no size until it is in the page.
  requestAnimationFrame(draw);
  const repaint = () => { if (base && base.data) draw(); };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", repaint);
  const watcher = new MutationObserver(repaint);
  for (const node of [document.documentElement, document.body]) {
    watcher.observe(node, {attributes: true, attributeFilter: ["class", "data-theme", "style"]});
  }
  return () => {
    play.stop();
    model.off("change:figure", answered);
    dark.removeEventListener("change", repaint);
    watcher.disconnect();
    globalThis.Plotly.purge(plot);
  };
}

export default {render};
