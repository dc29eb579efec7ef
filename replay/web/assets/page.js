// What the page does beyond links and forms: keys, running clocks, the player,
// and one connection for changes at a time. The page works without it.
(() => {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  document.documentElement.classList.add("js");

  // What somebody is typing or dragging is theirs.
  Idiomorph.defaults.ignoreActiveValue = true;

  // A browser has few connections for one host: the page holds one at most.
  let source = null;
  const connect = (url) => {
    if (source) source.close();
    source = new EventSource(url);
    return source;
  };
  htmx.createEventSource = connect;

  // A hidden page asks for nothing; shown again, it looks at once.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      if (source) source.close();
    } else if ($("[sse-connect]")) {
      reload();
    }
  });
  const reload = () => {
    const stream = $("[sse-connect]");
    if (stream) stream.remove(); // a new one connects
    htmx.ajax("GET", location.pathname + location.search, { target: "#main", select: "#main", swap: "morph:outerHTML" });
  };

  // A hand on the slider is not moved.
  let touched = 0;
  document.addEventListener("input", (event) => { if (event.target.id === "at") touched = Date.now(); });

  // After every change: what a screen reader should hear, and the slider's end.
  let notice = $("#notice") ? $("#notice").textContent : "";
  const settle = () => {
    const view = $("#view");
    if (!view) return;
    document.title = view.dataset.title;
    const now = $("#notice") ? $("#notice").textContent : "";
    if (now && now !== notice) $("#said").textContent = now;
    notice = now;
    const slider = $("#at");
    if (slider && slider !== document.activeElement && Date.now() - touched > 1000 && $("[sse-connect]")) {
      slider.max = slider.value = view.dataset.last;
      $("#seq").textContent = view.dataset.last;
      $("#seq").nextElementSibling.textContent = "/" + view.dataset.last;
    }
    tick();
    play();
    follow();
  };
  document.addEventListener("htmx:afterSettle", settle);
  document.addEventListener("htmx:sseMessage", settle);

  // Output that was read to its end stays at its end.
  const ends = new WeakMap();
  document.addEventListener("scroll", (event) => {
    const pre = event.target;
    if (pre.classList && pre.classList.contains("output")) {
      ends.set(pre, pre.scrollHeight - pre.scrollTop - pre.clientHeight < 8);
    }
  }, true);
  const follow = () => {
    for (const pre of document.querySelectorAll(".inspector .output")) {
      if (ends.get(pre) !== false) pre.scrollTop = pre.scrollHeight;
    }
  };

  // Running clocks.
  const pad = (n) => String(n).padStart(2, "0");
  const words = (seconds) => {
    if (seconds < 0) return "0s";
    if (seconds < 10) return seconds.toFixed(1) + "s";
    if (seconds < 60) return Math.floor(seconds) + "s";
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
    if (hours < 1) return minutes + "m " + pad(Math.floor(seconds) % 60) + "s";
    if (hours < 24) return hours + "h " + pad(minutes % 60) + "m";
    return Math.floor(hours / 24) + "d " + (hours % 24) + "h";
  };
  const tick = () => {
    for (const time of document.querySelectorAll("time[data-since]")) {
      const text = words((Date.now() - Date.parse(time.dataset.since)) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(tick, 1000);

  // The player comes when there is something to play.
  let loading = null;
  const loadPlayer = () => loading || (loading = new Promise((resolve, reject) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = document.body.dataset.playerStyle;
    const script = document.createElement("script");
    script.src = document.body.dataset.player;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(style, script);
  }));
  const play = () => {
    const box = $("[data-cast]:not([data-ready])");
    if (!box) return;
    box.dataset.ready = "true";
    loadPlayer().then(() => {
      box.textContent = "";
      AsciinemaPlayer.create({ url: box.dataset.cast }, box, { fit: "width", idleTimeLimit: 2, theme: "asciinema", terminalFontFamily: "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace", preload: true, controls: true });
    });
  };

  // Keys.
  const lines = () => [...document.querySelectorAll("a.line")];
  const move = (step) => {
    const all = lines(), at = all.indexOf(document.activeElement);
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    if (next) next.focus();
  };
  const press = (key) => {
    const link = $(`[data-key="${key}"]`);
    if (link) link.click();
    return Boolean(link);
  };
  let going = false;
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    "/": () => $("#search").focus(),
    "?": () => $("#keys").showModal(),
    g: () => { going = true; setTimeout(() => { going = false; }, 1500); },
    o: () => press("o"),
    p: () => press("p"),
    t: () => press("t"),
    Escape: () => {
      const open = $(".row.is-open > .line");
      if (press("Escape") && open) open.focus();
    },
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, dialog, .ap-player");
    if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
    if (typing) {
      if (event.target.id === "search") event.target.blur();
      return;
    }
    if (going && (event.key === "n" || event.key === "s")) {
      going = false;
      document.querySelectorAll(".bar nav a")[event.key === "n" ? 0 : 1].click();
      return;
    }
    const action = keys[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });

  settle();
})();
