/* Filters, keys, theme and enlarged charts. Everything is readable without this; nothing is loaded and nothing is sent. */
"use strict";
(() => {
  const root = document.documentElement;
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const by = (id) => document.getElementById(id);
  const say = (words) => { by("said").textContent = words; };

  /* theme: the system's, until somebody says otherwise */
  const kept = { read() { try { return localStorage.getItem("contextlab-theme"); } catch { return null; } },
    write(name) { try { localStorage.setItem("contextlab-theme", name); } catch { /* a page from disk may have no store */ } } };
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const theme = by("theme");
  const showTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  const turn = () => { root.dataset.theme = isDark() ? "light" : "dark"; kept.write(root.dataset.theme); showTheme(); };
  if (["light", "dark"].includes(kept.read())) root.dataset.theme = kept.read();
  theme.hidden = by("help").hidden = false;
  theme.addEventListener("click", turn);
  showTheme();

  /* copy */
  for (const button of all("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(code); button.textContent = "Selected"; }
      say(button.textContent);
    });
  }

  /* filters: chips and a query, kept in the address */
  const box = by("filters");
  const chips = all("[data-filter]");
  const items = all("[data-item], [data-row]");
  const query = by("query");
  const state = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  const words = (item) => ((item.dataset.search || "") + " " + item.textContent).toLowerCase();
  const apply = () => {
    const wanted = state();
    const verdicts = wanted.getAll("verdict"), outcomes = wanted.getAll("outcome"), q = (wanted.get("q") || "").toLowerCase();
    for (const chip of chips) {
      chip.setAttribute("aria-pressed", String(wanted.getAll(chip.dataset.filter).includes(chip.dataset.value)));
    }
    if (query && query.value !== (wanted.get("q") || "")) query.value = wanted.get("q") || "";
    let shown = 0, total = 0;
    for (const item of items) {
      const fits = (!verdicts.length || verdicts.includes(item.dataset.verdict))
        && (!outcomes.length || item.dataset.outcome.split(" ").some((one) => outcomes.includes(one)))
        && (!q || words(item).includes(q));
      item.hidden = !fits;
      if ("row" in item.dataset) { total += 1; shown += fits; }
    }
    const filtered = verdicts.length || outcomes.length || q;
    if (by("judged") && filtered) by("judged").open = true;
    if (by("num-shown")) by("num-shown").textContent = filtered ? `${shown} of ${total} judgements shown` : "";
  };
  const change = (alter) => {
    const wanted = state();
    alter(wanted);
    history.replaceState(null, "", `#${wanted}`);
    apply();
  };
  const toggle = (name, value) => change((wanted) => {
    const rest = wanted.getAll(name).filter((one) => one !== value);
    const was = wanted.getAll(name).length > rest.length;
    wanted.delete(name);
    for (const one of was ? rest : [...rest, value]) wanted.append(name, one);
  });
  if (box) {
    box.hidden = false;
    for (const chip of chips) chip.addEventListener("click", () => toggle(chip.dataset.filter, chip.dataset.value));
    query.addEventListener("input", () => change((wanted) => { query.value ? wanted.set("q", query.value) : wanted.delete("q"); }));
    addEventListener("hashchange", apply);
    apply();
  }

  /* enlarged charts */
  const zoom = by("zoom"), view = zoom.querySelector(".zoom-view");
  let whole = null, seen = null;
  const look = () => view.firstElementChild.setAttribute("viewBox", seen.join(" "));
  const nearer = (by_, x = .5, y = .5) => {
    seen = [seen[0] + seen[2] * (1 - by_) * x, seen[1] + seen[3] * (1 - by_) * y, seen[2] * by_, seen[3] * by_];
    look();
  };
  const move = (x, y) => { seen = [seen[0] + x * seen[2], seen[1] + y * seen[3], seen[2], seen[3]]; look(); };
  const reset = () => { seen = [...whole]; look(); };
  for (const figure of all("figure")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Enlarge";
    button.setAttribute("aria-label", `Enlarge: ${figure.querySelector(".name").textContent}`);
    button.addEventListener("click", () => {
      const copy = figure.querySelector("svg.wide").cloneNode(true);
      for (const one of [copy, ...all("[id]", copy)]) one.removeAttribute("id");
      copy.removeAttribute("aria-labelledby");
      copy.setAttribute("aria-label", figure.querySelector(".name").textContent);
      copy.classList.remove("wide");
      view.replaceChildren(copy);
      whole = copy.getAttribute("viewBox").split(" ").map(Number);
      reset();
      zoom.showModal();
    });
    figure.querySelector("figcaption").append(button);
  }
  const zooming = { in: () => nearer(.7), out: () => nearer(1 / .7), all: reset, close: () => zoom.close() };
  for (const button of all("[data-zoom]")) button.addEventListener("click", () => zooming[button.dataset.zoom]());
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = view.getBoundingClientRect();
    nearer(event.deltaY < 0 ? .85 : 1 / .85, (event.clientX - at.left) / at.width, (event.clientY - at.top) / at.height);
  }, { passive: false });
  view.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) move(-event.movementX / view.clientWidth, -event.movementY / view.clientHeight);
  });

  /* keys */
  const stops = () => all("[data-item]").filter((item) => !item.hidden);
  const go = (step) => {
    const found = stops();
    if (!found.length) return;
    const at = found.indexOf(document.activeElement.closest("[data-item]"));
    const next = found[at < 0 ? (step > 0 ? 0 : found.length - 1) : Math.max(0, Math.min(found.length - 1, at + step))];
    next.focus();
    next.scrollIntoView({ block: "start" });
  };
  const keys = {
    "/": () => query && query.focus(),
    f: () => box && toggle("verdict", "failed"),
    j: () => go(1),
    k: () => go(-1),
    t: turn,
    "?": () => by("keys").showModal(),
  };
  const zoomKeys = { "+": zooming.in, "=": zooming.in, "-": zooming.out, 0: reset, ArrowLeft: () => move(-.1, 0),
    ArrowRight: () => move(.1, 0), ArrowUp: () => move(0, -.1), ArrowDown: () => move(0, .1) };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = zoom.open ? zoomKeys[event.key] : by("keys").open ? null : keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  by("help").addEventListener("click", keys["?"]);

  /* paper has no summaries to open */
  addEventListener("beforeprint", () => { for (const one of all("details:not([open])")) { one.open = true; one.dataset.opened = ""; } });
  addEventListener("afterprint", () => { for (const one of all("details[data-opened]")) { one.open = false; delete one.dataset.opened; } });
})();
