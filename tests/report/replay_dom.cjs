// Run the script of a shared replay on a small DOM, and print what it shows as JSON.
const fs = require("fs");
const vm = require("vm");

const page = fs.readFileSync(process.argv[2], "utf8");
const data = page.match(/id="replay-data">([^<]*)</)[1];
const script = page.match(/<script>([\s\S]*?)<\/script>/)[1];

class Element {
  children = [];
  attributes = {};
  style = {};
  listeners = {};
  textContent = "";
  value = "0";
  hidden = true;
  get childNodes() { return this.children; }
  append(...added) {
    for (const one of added) one.parent = this;
    this.children.push(...added);
  }
  replaceWith(other) {
    other.parent = this.parent;
    this.parent.children[this.parent.children.indexOf(this)] = other;
  }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, act) { this.listeners[name] = act; }
}

const parts = {};
const part = (id) => (parts[id] ??= new Element());
part("replay-data").textContent = data;
part("speed").value = "8";
const timers = [];
const seen = {};
const text = () =>
  part("screen").children.map((row) => row.children.map((one) => one.textContent).join(""));

vm.runInNewContext(script, {
  document: { getElementById: part, createElement: () => new Element() },
  Uint8Array, atob, Blob, DecompressionStream, Response,
  setInterval: (act) => timers.push(act),
  clearInterval: () => timers.splice(0),
});

setTimeout(() => {
  seen.hidden = part("replay").hidden;
  seen.first = text();
  seen.views = part("views").children.map((one) => one.textContent);
  seen.markers = part("markers").children.map((one) => one.textContent);
  part("play").listeners.click();
  seen.playing = part("play").textContent;
  for (let at = 0; at < Number(part("position").max); at += 1) timers[0]();
  seen.last = text();
  timers[0]();
  seen.over = part("play").textContent;
  part("views").children[1].listeners.click();
  seen.second = text();
  part("markers").children[0].listeners.click();
  seen.marked = part("time").textContent;
  part("screen").listeners.keydown({ key: "Home", preventDefault() {} });
  seen.home = part("position").value;
  console.log(JSON.stringify(seen));
}, 500);
