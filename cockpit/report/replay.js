"use strict";
// Plays the frames in #replay-data. Text goes into the page as text only, never as markup.
(async () => {
  const part = (id) => document.getElementById(id);
  const raw = Uint8Array.from(atob(part("replay-data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = JSON.parse(await new Response(stream).text());
  const screen = part("screen"), play = part("play"), position = part("position");
  const shown = [];
  let view = 0, timer = 0;

  const line = (number) => {
    const row = document.createElement("div");
    for (const [text, style, cells] of data.lines[number]) {
      const span = document.createElement("span");
      span.textContent = text;
      span.className = `s${style}`;
      span.style.width = `${cells}ch`;
      row.append(span);
    }
    return row;
  };
  const draw = () => {
    const at = Number(position.value);
    data.frames[at][view].forEach((number, row) => {
      if (shown[row] === number) return;
      shown[row] = number;
      const made = line(number);
      screen.children[row] ? screen.children[row].replaceWith(made) : screen.append(made);
    });
    part("time").textContent = data.times[at];
    position.setAttribute("aria-valuetext", data.times[at]);
    part("views").childNodes.forEach((one, number) => {
      one.setAttribute("aria-pressed", String(number === view));
    });
  };
  const go = (to) => {
    position.value = String(Math.min(data.frames.length - 1, Math.max(0, to)));
    draw();
  };
  const pause = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  };
  const toggle = () => {
    if (timer) return pause();
    if (Number(position.value) === data.frames.length - 1) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      if (Number(position.value) === data.frames.length - 1) return pause();
      go(Number(position.value) + 1);
    }, 1000 / Number(part("speed").value));
  };
  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", act);
    return made;
  };

  data.views.forEach((name, number) => {
    part("views").append(button(name, () => { view = number; draw(); }));
  });
  data.markers.forEach(([at, text]) => {
    part("markers").append(button(text, () => { pause(); go(at); }));
  });
  position.max = String(data.frames.length - 1);
  position.addEventListener("input", () => { pause(); draw(); });
  play.addEventListener("click", toggle);
  part("speed").addEventListener("change", () => { if (timer) { pause(); toggle(); } });
  screen.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === " ") toggle();
    else if (by) { pause(); go(Number(position.value) + by); }
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(data.frames.length - 1);
    else return;
    event.preventDefault();
  });
  part("replay").hidden = false;
  go(data.start);
})();
