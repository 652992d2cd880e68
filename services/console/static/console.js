// Makes the pages live: times, keys, copying, pausing. Every page works without it.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const stored = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem(name);
      localStorage.setItem(name, value);
    } catch { /* A browser may keep nothing. */ }
    return null;
  };

  // Times: the server's clock counts, and the user's zone is shown.
  let ahead = 0;
  let absolute = stored("times") === "absolute";
  const readClock = () => {
    const now = Number($("main")?.dataset.now);
    // A page of the past says its own time, not that of the server.
    if (now && !("past" in $("main").dataset)) ahead = now * 1000 - Date.now();
  };
  const plural = (whole, size, unit, smaller, name) => {
    const rest = Math.floor((whole % size) / smaller);
    const first = `${Math.floor(whole / size)} ${unit}`;
    return rest === 0 || whole >= 172800 ? first : `${first} ${rest} ${name}`;
  };
  const duration = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    if (whole >= 86400) return plural(whole, 86400, "d", 3600, "h");
    if (whole >= 3600) return plural(whole, 3600, "h", 60, "min");
    if (whole >= 60) return plural(whole, 60, "min", 1, "s");
    return `${whole} s`;
  };
  const two = (number) => String(number).padStart(2, "0");
  const countdown = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
    return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
  };
  const due = (left, prefix) => (left < -15 ? `overdue by ${duration(-left)}` : prefix + countdown(left));
  // Not by Intl: its first format takes a new page tens of milliseconds, before it is shown.
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const clockText = (date) => [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  const dayText = (date) => `${two(date.getDate())} ${MONTHS[date.getMonth()]} ${clockText(date)}`;
  const zone = () => {
    const east = -new Date().getTimezoneOffset();
    const [hours, minutes] = [Math.floor(Math.abs(east) / 60), Math.abs(east) % 60];
    return east ? `UTC${east < 0 ? "-" : "+"}${hours}${minutes ? `:${two(minutes)}` : ""}` : "UTC";
  };
  const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const tick = () => {
    const past = $("main")?.dataset;
    const now = past && "past" in past ? Number(past.now) * 1000 : Date.now() + ahead;
    for (const element of all("time[datetime]")) {
      const date = new Date(element.dateTime);
      const passed = (now - date) / 1000;
      const data = element.dataset;
      if ("left" in data) put(element, due(-passed, ""));
      else if ("due" in data) put(element, due(-passed, "in "));
      else if ("at" in data) put(element, clockText(date));
      else if ("day" in data || absolute) put(element, dayText(date));
      else if (!("frozen" in data)) {
        const suffix = element.textContent.endsWith(" ago") || data.suffix ? " ago" : "";
        if (suffix) data.suffix = "1";
        put(element, duration(passed) + suffix);
      }
    }
    for (const bar of all("svg[data-since]")) {
      const passed = Math.min(420, Math.max(0, Math.floor(now / 1000 - Number(bar.dataset.since))));
      bar.querySelector("g rect")?.setAttribute("width", passed);
    }
    const clock = $("clock");
    if (clock) put(clock, `${clockText(new Date(Date.now() + ahead))} ${zone()}`);
  };

  // The state of the connection, and pausing.
  let paused = false;
  let waiting = 0;
  let connected = null;
  let lostAt = null;
  const showState = () => {
    const word = $("live-word");
    const pause = $("pause");
    const stream = $("stream");
    if (!word || !stream) return;
    const isLost = connected === false || document.querySelector("[data-lost]");
    const [look, text] = isLost ? ["wait", "Not live"] : paused ? ["off", waiting ? `Paused, ${waiting} new` : "Paused"] : ["ok", "Live"];
    word.className = `st ${look} l`;
    word.hidden = connected === null;
    put(word.lastElementChild, text);
    pause.hidden = false;
    put(pause, paused ? "Resume" : "Pause");
    pause.setAttribute("aria-pressed", String(paused));
  };
  const showBand = () => {
    const main = $("main");
    $("lost")?.remove();
    if (connected !== false || !main) return;
    const band = document.createElement("div");
    band.id = "lost";
    band.className = "note wait";
    const mark = document.createElement("span");
    mark.className = "sh";
    const text = document.createElement("p");
    text.textContent = `Not live since ${clockText(lostAt)}. The console does not answer; this page shows that time. The browser tries again every few seconds.`;
    band.append(mark, text);
    main.prepend(band);
  };
  const setConnected = (is) => {
    if (is === connected) return;
    if (!is) lostAt = new Date();
    const back = connected === false && is;
    connected = is;
    showBand();
    showState();
    if (back) say("Live again");
  };
  const togglePause = () => {
    paused = !paused;
    // A frame omits the rows of the frame before it, which was not shown: begin with a whole page.
    if (!paused && waiting) reconnect();
    waiting = 0;
    showState();
  };

  // One polite sentence at a time, at most every five seconds.
  let lastSaid = 0;
  let sentence = "";
  const say = (text) => {
    sentence = text;
    const wait = Math.max(0, lastSaid + 5000 - Date.now());
    setTimeout(() => {
      if (sentence !== text) return;
      lastSaid = Date.now();
      put($("status"), text);
    }, wait);
  };

  // Frames: what has focus or the pointer keeps its place.
  let pointedAt = 0;
  let groups = new Map();
  let values = new Map();
  const rowsOf = (root) => all("[data-row]", root);
  const order = (root) => rowsOf(root).map((row) => row.id).join(" ");
  const isInUse = (table) => table.contains(document.activeElement) || Date.now() - pointedAt < 2000;
  const keepOrder = (fragment) => {
    const [table, next] = [document.querySelector("table[data-rows]"), fragment.querySelector("table[data-rows]")];
    const moved = $("moved");
    if (!table || !next || !moved) return;
    const bodies = all("tbody[id]", next);
    const known = new Map(rowsOf(table).map((row, place) => [row.id, [place, row.parentElement.id]]));
    const differ = rowsOf(next).filter((row) => known.has(row.id) && known.get(row.id)[1] !== row.parentElement.id);
    const sorted = order(next);
    if (isInUse(table) && (differ.length || sorted !== order(table))) {
      for (const row of differ) {
        const home = bodies.find((body) => body.id === known.get(row.id)[1]);
        if (home) home.append(row);
      }
      for (const body of bodies) {
        const place = (row) => known.get(row.id)?.[0] ?? Infinity;
        for (const row of rowsOf(body).sort((one, other) => place(one) - place(other))) body.append(row);
      }
      const count = differ.length || 1;
      put($("resort"), `${count} row${count === 1 ? "" : "s"} moved. Sort again`);
      moved.hidden = sorted === order(next);
    } else moved.hidden = true;
  };
  const keyOf = (cell) => `${cell.closest("[id]")?.id} ${cell.cellIndex}`;
  const remember = () => {
    groups = new Map(all("[data-group]").map((row) => [row.id, row.dataset.group]));
    values = new Map(all("[data-v]").map((cell) => [keyOf(cell), cell.dataset.v]));
  };
  const showChanges = () => {
    for (const row of all("[data-group]")) {
      const before = groups.get(row.id);
      if (before && before !== row.dataset.group) say(`${row.dataset.name}: ${row.dataset.say.toLowerCase()}`);
    }
    all("[data-v]").forEach((cell) => {
      const before = values.get(keyOf(cell));
      if (before !== undefined && before !== cell.dataset.v) {
        cell.classList.remove("fresh");
        requestAnimationFrame(() => cell.classList.add("fresh"));
        setTimeout(() => cell.classList.remove("fresh"), 10000);
      }
    });
  };

  // Copying. A frame may bring other buttons, so the copied text decides which button says "Copied".
  let copied = null;
  let untilForgotten = 0;
  const copyOf = (button) => ("copyAddress" in button.dataset ? location.href : button.dataset.copy);
  const labelCopies = () => {
    for (const button of all("[data-copy], [data-copy-address]")) {
      const usual = "copyAddress" in button.dataset ? "Copy the address" : "Copy";
      put(button, copyOf(button) === copied ? "Copied" : usual);
      button.hidden = false;
    }
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      say("The browser does not let this page copy");
      return;
    }
    const keep = (value) => { copied = value; labelCopies(); };
    keep(text);
    clearTimeout(untilForgotten);
    untilForgotten = setTimeout(keep, 2000, null);
  };

  const settle = () => {
    readClock();
    const title = $("main")?.dataset.title;
    if (title) document.title = title;
    if ($("main")?.hasAttribute("data-ended")) location.reload();
    labelCopies();
    showBand();
    showState();
    tick();
  };
  document.addEventListener("htmx:sse:after:connection", () => setConnected(true));
  document.addEventListener("htmx:sse:error", () => setConnected(false));
  document.addEventListener("htmx:error", () => setConnected(false));
  document.addEventListener("htmx:sse:before:message", (event) => {
    setConnected(true);
    if (!paused) return;
    waiting += 1;
    showState();
    event.preventDefault();
  });
  document.addEventListener("htmx:before:swap", (event) => {
    remember();
    for (const task of event.detail.tasks) keepOrder(task.fragment);
  });
  document.addEventListener("htmx:after:swap", () => {
    settle();
    showChanges();
    if (document.querySelector("[data-same]")) reconnect();
  });
  document.addEventListener("pointermove", (event) => {
    if (event.target.closest?.("table[data-rows]")) pointedAt = Date.now();
  }, { passive: true });

  // An unchanged row comes without its content: the row on the page stays.
  htmx.registerExtension("rows", {
    htmx_before_morph_node: (_, { newNode }) => newNode.dataset?.same === undefined,
  });
  const reconnect = () => {
    const stream = $("stream");
    if (!stream) return;
    const url = location.pathname + location.search;
    const next = stream.cloneNode(false);
    next.setAttribute("hx-sse:connect", `/live?view=${encodeURIComponent(url)}`);
    next.setAttribute("hx-nonce", document.querySelector("script[nonce]").nonce);
    stream.replaceWith(next);
    htmx.process(next);
  };
  // The address follows the filter, and so does the stream.
  const follow = (url, isTyped) => {
    // The past has no stream: the page is loaded once the filter is sent.
    if (!$("stream")) {
      if (!isTyped) location.assign(url);
      return;
    }
    history.replaceState(null, "", url);
    reconnect();
  };
  const addressOf = (form) => {
    // The first choice of a list is the default, which the address omits.
    const usual = new Set(all("select", form).filter((list) => list.selectedIndex === 0).map((list) => list.name));
    const given = [...new FormData(form)].filter(([name, value]) => value !== "" && !usual.has(name));
    const query = new URLSearchParams(given);
    return String(query) ? `${form.getAttribute("action")}?${query}` : form.getAttribute("action");
  };
  let typing = 0;
  document.addEventListener("input", (event) => {
    if (event.target.id !== "q") return;
    clearTimeout(typing);
    typing = setTimeout(() => follow(addressOf(event.target.form), true), 150);
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) location.assign(addressOf(event.target.form));
    if (event.target.id === "keys-on") stored("keys", event.target.checked ? "on" : "off");
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button");
    if (!button) return;
    if (copyOf(button) !== undefined) copy(copyOf(button));
    if (button.id === "pause") togglePause();
    if (button.id === "resort") location.reload();
  });

  // Keys: none while a field has the focus, and all can be switched off.
  let afterG = 0;
  const step = (by) => {
    const rows = rowsOf(document).map((row) => row.querySelector("[data-open], a")).filter(Boolean);
    const here = rows.findIndex((link) => link.closest("[data-row]").contains(document.activeElement));
    const next = rows[Math.min(rows.length - 1, Math.max(0, here + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const go = (action) => {
    const row = document.activeElement.closest?.("[data-row]") ?? document;
    const target = row.querySelector(`[data-${action}]`)?.dataset[action];
    if (target) location.assign(target);
  };
  const KEYS = {
    "/": () => $("q")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    g: () => { afterG = Date.now(); },
    p: () => { if ($("stream")) togglePause(); },
    t: () => { absolute = !absolute; stored("times", absolute ? "absolute" : "relative"); tick(); },
    y: () => document.querySelector("[data-copy]")?.click(),
    s: () => go("scale"),
    e: () => go("edit"),
    "?": () => $("keys")?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const isField = event.target.matches?.("input, select, textarea");
    if (event.target.id === "q" && event.key === "Escape") {
      if (event.target.value) { event.target.value = ""; follow(addressOf(event.target.form)); } else event.target.blur();
      event.preventDefault();
      return;
    }
    if (isField || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (stored("keys") === "off" && event.key !== "?") return;
    // The link of the page stays at the moment that it shows.
    const section = Date.now() - afterG < 1500 && all("[data-go]").find((link) => link.dataset.go === event.key);
    if (section) {
      afterG = 0;
      location.assign(section.href);
      return;
    }
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "tools") return;
    event.preventDefault();
    follow(addressOf(event.target));
  });

  // The picker of a moment: the server takes UTC, and the user sees the zone of the browser.
  const when = $("when-time");
  if (when) {
    const local = (date) => new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
    if (when.value) when.value = local(new Date(`${when.value}Z`));
    when.max = local(new Date(Date.now() + ahead));
    put($("when-zone"), zone());
    $("when").addEventListener("submit", (event) => {
      event.preventDefault();
      const form = event.target;
      const others = [...new FormData(form)].filter(([name, value]) => name !== "at" && value !== "");
      const query = new URLSearchParams(others);
      const position = $("when-position").value;
      const at = position || (when.value && `${new Date(when.value).toISOString().slice(0, 19)}Z`);
      if (at) query.set("at", at);
      location.assign(String(query) ? `${form.getAttribute("action")}?${query}` : form.getAttribute("action"));
    });
  }

  const keysOn = $("keys-on");
  if (keysOn) keysOn.checked = stored("keys") !== "off";
  settle();
  // Put the message into the live region only now: screen readers do not read initial text.
  if ($("said")) say($("said").textContent);
  setInterval(tick, 1000);
})();
