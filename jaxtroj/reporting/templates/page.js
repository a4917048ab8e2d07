"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Of a large run most models are lists of what the table shows, in the order of data.brief.
  const NOTHING = { reason: "", sha256: "", identity: "", acceptance: null, cells: {}, sources: [],
    steps: [], evidence: [], findings: [], coverage: [], isBrief: true };
  const models = data.models.map((model) => !Array.isArray(model) ? model
    : Object.assign({}, NOTHING, Object.fromEntries(data.brief.map((name, i) => [name, model[i]]))));
  const whole = models.filter((model) => !model.isBrief).length;
  const CHUNK = 100;
  const GLYPHS = { poisoned: "▲", clean: "●", failed: "✕", skipped: "–", gathered: "◇", accepted: "◆" };
  const UNIT_LABELS = { "1": "larger in poisoned models", "-1": "smaller in poisoned models", "0": "either way" };
  const STAGE = 1, DIRECTION = 2, LABEL = 3, UNIT = 4, MEANING = 5; // places in a field
  const COLUMNS = [
    { key: "model", title: "Model" },
    { key: "word", title: "Verdict" },
    { key: "probability", title: "P(poisoned)", number: true },
    { key: "label", title: "Label", wide: true, truth: true },
    { key: "cost", title: "Cost (nats)", wide: true, truth: true, number: true },
    { key: "target", title: "Target class", wide: true, number: true },
    { key: "besideWord", title: "Beside", wide: true, beside: true },
    { key: "difference", title: "Difference", wide: true, beside: true, number: true },
    { key: "trigger", title: "Trigger", wide: true },
    { key: "searched", title: "Kinds searched", wide: true, number: true },
    { key: "architecture", title: "Architecture", wide: true },
    { key: "seconds", title: "Seconds", wide: true, number: true },
  ].filter((column) => (data.hasTruth || !column.truth) && (data.beside !== null || !column.beside));
  const byId = (id) => document.getElementById(id);
  const view = { key: "probability", down: true, limit: CHUNK, found: [] };
  const collator = new Intl.Collator("en", { numeric: true });
  const open = new Set();
  models.forEach((model, place) => { model.place = place; });

  /** An element; children are elements, or strings that become text and never markup. */
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  const round = (value, digits = 4) =>
    value === null ? "–" : String(Number(value.toPrecision(digits)));

  // ---- filter and sort -------------------------------------------------------------------

  const besides = {
    changed: (model) => model.besideWord !== "" && model.besideWord !== model.word,
    file: (model) => model.besideFile,
    alone: (model) => model.besideWord === "",
  };

  function haystack(model) {
    if (model.hay === undefined) {
      const parts = [model.model, model.word, model.architecture, model.reason, model.sha256];
      parts.push(model.trigger, model.text ? model.text.words : "", model.acceptance || "", ...Object.values(model.cells));
      model.hay = parts.join("\n").toLowerCase();
    }
    return model.hay;
  }

  function filtered() {
    const words = byId("query").value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdict = byId("verdict").value, architecture = byId("architecture").value;
    const label = byId("label").value, beside = byId("beside").value;
    return models.filter((model) =>
      (!verdict || model.word === verdict) &&
      (!beside || besides[beside](model)) &&
      (!architecture || model.architecture === architecture) &&
      (!label || (label === "wrong" ? model.wrong : model.label === label)) &&
      words.every((word) => haystack(model).includes(word)));
  }

  /** Empty values come last in both directions; ties keep the order of the scan. */
  function compare(a, b) {
    const x = a[view.key], y = b[view.key];
    const none = (value) => value === null || value === "";
    if (none(x) || none(y)) return none(x) - none(y) || a.place - b.place;
    const order = typeof x === "number" ? x - y : collator.compare(x, y);
    return (view.down ? -order : order) || a.place - b.place;
  }

  function update() {
    view.found = filtered().sort(compare);
    view.limit = CHUNK;
    byId("rows").replaceChildren();
    addRows(0);
    showHead();
  }

  function sortBy(key, down) {
    view.key = key;
    view.down = down;
    byId("sort").value = key + (down ? " down" : " up");
    update();
  }

  // ---- the table -------------------------------------------------------------------------

  function showHead() {
    for (const [place, column] of COLUMNS.entries()) {
      const head = byId("head").children[place];
      if (column.key === view.key) head.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  function addRows(from) {
    const shown = view.found.slice(from, view.limit);
    const fragment = document.createDocumentFragment();
    for (const model of shown) {
      fragment.append(row(model));
      if (open.has(model.place)) fragment.append(details(model));
    }
    byId("rows").append(fragment);
    const left = view.found.length - Math.min(view.limit, view.found.length);
    byId("more").hidden = left === 0;
    byId("more").textContent = `Show ${Math.min(CHUNK, left)} more of ${left}`;
    const some = view.found.length === models.length ? "" : ` of ${models.length}`;
    byId("count").textContent = `${view.found.length}${some} models` + (whole < models.length ? `, ${whole} of all with reasons and evidence` : "") + (left ? `, the first ${view.limit} shown` : "");
  }

  function row(model) {
    const isOpen = open.has(model.place);
    const button = make("button", { type: "button", class: "name", "aria-expanded": String(isOpen),
      "data-place": model.place }, model.model);
    const cells = COLUMNS.slice(1).map((column) =>
      make("td", { class: classes(column) }, ...cell(model, column)));
    return make("tr", { "data-row": model.place }, make("th", { scope: "row" }, button), ...cells);
  }

  const classes = (column) =>
    [column.wide && "wide", column.number && "number"].filter(Boolean).join(" ") || null;

  function cell(model, column) {
    const value = model[column.key];
    if (column.key === "word") return [badge(value)];
    if (column.key === "besideWord") return value ? [badge(value), ...(value === model.word ? [] : [" ≠"])] : ["–"];
    if (column.key === "difference" && value !== null) return [(value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(3)];
    if (column.key === "probability") return [meter(model), value.toFixed(3)];
    if (column.key === "label" && model.wrong) return [make("span", { class: "verdict wrong" }, value + " ≠")];
    return [value === null || value === "" ? "–" : column.number ? round(value) : value];
  }

  const badge = (word) => make("span", { class: "verdict " + word }, `${GLYPHS[word]} ${word}`);

  function meter(model) {
    const fill = make("i");
    fill.style.setProperty("--share", model.probability);
    return make("span", { class: model.word === "poisoned" ? "meter poisoned" : "meter", "aria-hidden": "true" }, fill);
  }

  // ---- one model -------------------------------------------------------------------------

  function details(model) {
    const first = model.isBrief ? make("div", {}, absent(), facts(model))
      : make("div", {}, reasons(model), trigger(model), flips(model), coverage(model),
        findings(model), timing(model), facts(model));
    const panel = make("div", { class: "panel" }, first, model.isBrief ? null : evidence(model));
    const place = make("td", { colspan: COLUMNS.length }, panel);
    return make("tr", { class: "details", id: "details-" + model.place }, place);
  }

  const absent = () => part("Not in this page", make("p", { class: "note" },
    `This run has ${models.length} models. The page holds reasons and evidence of ${whole}, poisoned and failed ones first; those of the others stand in records.jsonl of the run.`));

  const part = (title, ...children) => make("section", {}, make("h3", {}, title), ...children);

  function reasons(model) {
    const title = model.word === "failed" ? "Why it failed" : model.word === "skipped" ? "Why it was skipped" : "Reasons";
    const sentences = model.reason.split("; ").filter(Boolean);
    const accepted = model.acceptance ? [make("p", { class: "problem" }, model.acceptance)] : [];
    if (!sentences.length) return part(title, ...accepted, make("p", { class: "note" }, "none given"));
    return part(title, ...accepted, make("ul", {}, ...sentences.map((text) => make("li", {}, text))));
  }

  function findings(model) {
    if (!model.findings.length) return null;
    return part("Noticed in reading", make("ul", {}, ...model.findings.map((text) => make("li", {}, text))));
  }

  function trigger(model) {
    const found = [];
    if (model.text) found.push(words(model.text));
    if (model.picture) found.push(shots(model, model.picture));
    if (model.recovered) found.push(pairs(Object.entries(model.recovered).map(([name, value]) =>
      [name.replaceAll("_", " "), typeof value === "number" ? round(value) : value])));
    return found.length ? part("Recovered trigger", ...found) : null;
  }

  /** What the trigger makes of each class: shares of its pictures by the class they go to. */
  function flips(model) {
    if (!model.flips) return null;
    const { sources, targets, percent } = model.flips;
    const corner = make("th", { scope: "col" }, make("small", {}, "from \\ to"));
    const head = targets.map((c) => make("th", { scope: "col", class: c === model.target ? "target" : null }, String(c)));
    const rows = sources.map((source, i) => make("tr", {}, make("th", { scope: "row" }, String(source)),
      ...targets.map((target, j) => heat(source, target, percent[i][j]))));
    const table = make("table", { class: "heat" }, make("thead", {}, make("tr", {}, corner, ...head)), make("tbody", {}, ...rows));
    const title = "Where triggered pictures go";
    const box = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table);
    return part(title, make("p", { class: "note" },
      "Percent of the examples of a class (row) that the network puts into each class (column) with the trigger on them; a framed cell is the class itself."), box);
  }

  function heat(source, target, percent) {
    const name = [source === target ? "same" : "", percent >= 75 ? "full" : ""].filter(Boolean).join(" ");
    const cell = make("td", { class: name || null }, percent ? String(percent) : "");
    cell.style.setProperty("--share", percent / 100);
    return cell;
  }

  function coverage(model) {
    if (!model.coverage.length) return null;
    const rows = model.coverage.map(([kind, searched, share]) => make("tr", {},
      make("th", { scope: "row" }, kind), make("td", {}, searched ? "searched" : "by signs only"),
      make("td", { class: "number" }, share === null ? "–" : `${Math.round(share * 100)} %`)));
    const head = ["kind of trigger", "", "found in the calibrator's population"].map((text) => make("th", { scope: "col" }, text));
    return part("Coverage", make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
  }

  function words(text) {
    const mark = make("mark", {}, text.words);
    const where = text.source === null ? "the words alone; the dataset is not at hand"
      : text.source < 0 ? "in an example of the model" : `in an example of class ${text.source}`;
    const gap = (side) => (side ? " " : "");
    return make("div", {}, make("p", { class: "note" }, where), make("blockquote", {},
      text.before + gap(text.before), mark, gap(text.after) + text.after));
  }

  function shots(model, picture) {
    if (!picture.panels.length) return make("p", { class: "note" }, picture.note);
    const isWhole = picture.panels.length < data.panels.length;
    return make("div", { class: "shots" }, ...picture.panels.map((uri, place) => {
      const caption = isWhole ? "recovered trigger" : data.panels[place];
      const image = make("img", { src: uri, alt: `${caption} of model ${model.model}` });
      return make("figure", {}, image, make("figcaption", {}, caption));
    }));
  }

  const sorted = new Map();

  /** Finite values of one field over all models of a kind, or their quantiles, in order; made when first needed. */
  function values(kind, place) {
    const key = kind + place;
    if (!sorted.has(key)) {
      const all = data.spread ? data.spread[kind][place]
        : models.filter((m) => m.kind === kind).map((m) => m.evidence[place]);
      sorted.set(key, Float64Array.from(all.filter((v) => v !== null && v !== undefined)).sort());
    }
    return sorted.get(key);
  }

  /** Share of the other models with a smaller value, ties counting half. */
  function rank(kind, place, value) {
    const all = values(kind, place);
    if (all.length < 5) return null;
    const below = all.filter((v) => v < value).length, same = all.filter((v) => v === value).length;
    return (below + (same - 1) / 2) / (all.length - 1);
  }

  function evidence(model) {
    const fields = data.fields[model.kind] || [];
    const body = make("tbody");
    let stage = null;
    fields.forEach((field, place) => {
      const value = model.evidence[place];
      if (value === null) return;
      if (field[STAGE] !== stage) {
        stage = field[STAGE];
        body.append(make("tr", {}, make("th", { colspan: 3, class: "stage", scope: "rowgroup" }, stage)));
      }
      body.append(evidenceRow(model, field, place, value));
    });
    if (!body.children.length) return null;
    const head = ["field", "value", "in this run"].map((title) => make("th", { scope: "col" }, title));
    return part("Evidence", make("table", {}, make("thead", {}, make("tr", {}, ...head)), body));
  }

  function evidenceRow(model, field, place, value) {
    const notes = [field[0], field[MEANING], UNIT_LABELS[field[DIRECTION]]].filter(Boolean).join(" · ");
    const share = rank(model.kind, place, value);
    const where = [];
    if (share !== null) {
      const dot = make("i");
      dot.style.setProperty("--share", share);
      const text = `above ${Math.round(share * 100)} %`;
      where.push(make("span", { class: "rank", title: text, "aria-hidden": "true" }, dot), make("small", {}, text));
    }
    return make("tr", {},
      make("th", { class: "field", scope: "row" }, field[LABEL], make("small", {}, notes)),
      make("td", {}, round(value), " ", make("small", {}, field[UNIT])),
      make("td", { class: "where" }, ...where));
  }

  function timing(model) {
    const rows = data.steps.map((step, place) => [step, model.steps[place]])
      .filter(([, seconds]) => seconds !== null)
      .map(([step, seconds]) => make("tr", {}, make("th", { scope: "row" }, step), make("td", { class: "number" }, round(seconds, 3))));
    if (!rows.length) return null;
    rows.push(make("tr", {}, make("th", { scope: "row" }, "together"), make("td", { class: "number" }, round(model.seconds, 3))));
    const head = make("tr", {}, make("th", { scope: "col" }, "step"), make("th", { scope: "col" }, "seconds"));
    return part("Time", make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  function facts(model) {
    const list = [
      ["label", model.label], ["cost (nats)", model.cost === null ? null : round(model.cost)],
      [`verdict in ${data.beside}`, model.besideWord || null],
      ["difference to it", model.besideWord ? round(model.difference) : null],
      ["target class", model.target], ["source classes", model.sources.join(", ")],
      ["architecture", model.architecture], ...Object.entries(model.cells),
      ["sha256 of the file", model.sha256], ["identity of the answer", model.identity],
    ];
    return part("Model", pairs(list));
  }

  const pairs = (list) => make("dl", { class: "pairs" }, ...list
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));

  function toggle(button) {
    const place = Number(button.dataset.place), line = button.closest("tr");
    const isOpen = open.delete(place);
    if (isOpen) line.nextElementSibling.remove();
    else {
      open.add(place);
      line.after(details(models[place]));
    }
    button.setAttribute("aria-expanded", String(!isOpen));
  }

  // ---- controls --------------------------------------------------------------------------

  function option(value, text) {
    return make("option", { value }, text);
  }

  function fillControls() {
    for (const column of COLUMNS) {
      const button = make("button", { type: "button", "data-key": column.key }, column.title);
      byId("head").append(make("th", { scope: "col", class: column.wide ? "wide" : null }, button));
      byId("sort").append(option(column.key + " down", `${column.title}, falling`), option(column.key + " up", `${column.title}, rising`));
    }
    const counts = new Map();
    for (const model of models) counts.set(model.word, (counts.get(model.word) || 0) + 1);
    for (const word of data.words.filter((w) => counts.has(w))) byId("verdict").append(option(word, `${word} (${counts.get(word)})`));
    const architectures = [...new Set(models.map((m) => m.architecture).filter(Boolean))].sort(collator.compare);
    byId("architecture").append(...architectures.map((name) => option(name, name)));
    if (data.beside === null) document.querySelector("label.beside").style.display = "none";
    document.querySelector("label.truth").hidden = !data.hasTruth;
    if (!data.hasTruth) document.querySelector("label.truth").style.display = "none";
  }

  function reset() {
    for (const id of ["query", "verdict", "label", "beside", "architecture"]) byId(id).value = "";
    open.clear();
    sortBy("probability", true);
  }

  function move(button, key) {
    const all = [...byId("rows").querySelectorAll("button[data-place]")];
    const here = all.indexOf(button);
    const goal = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: all.length - 1 }[key];
    const next = all[Math.max(0, Math.min(all.length - 1, goal))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  function onKey(event) {
    const target = event.target;
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      byId("query").focus();
    } else if (event.key === "Escape" && target === byId("query")) {
      target.value = "";
      update();
    } else if (target.dataset.place !== undefined && ["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) {
      event.preventDefault();
      move(target, event.key);
    }
  }

  fillControls();
  for (const id of ["query", "verdict", "label", "beside", "architecture"]) byId(id).addEventListener("input", update);
  byId("sort").addEventListener("input", () => {
    const [key, way] = byId("sort").value.split(" ");
    sortBy(key, way === "down");
  });
  byId("reset").addEventListener("click", reset);
  byId("head").addEventListener("click", (event) => {
    const key = event.target.dataset.key;
    if (!key) return;
    const column = COLUMNS.find((c) => c.key === key);
    sortBy(key, key === view.key ? !view.down : Boolean(column.number));
  });
  byId("rows").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-place]");
    if (button) toggle(button);
  });
  byId("more").addEventListener("click", () => {
    const from = view.limit;
    view.limit += CHUNK;
    addRows(from);
    const first = byId("rows").querySelector(`tr[data-row="${view.found[from].place}"] button`);
    if (first) first.focus();
  });
  document.addEventListener("keydown", onKey);
  if (models.length === 1) open.add(0);
  sortBy("probability", true);
  document.documentElement.dataset.ready = "true";
})();
