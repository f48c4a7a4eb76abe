// Loads the page again and again, and replaces what has changed. The server has escaped all of it. Without this script
// the page works, but does not update itself.
"use strict";
(() => {
  const every = Number(document.body.dataset.every); // ms
  const pause = document.getElementById("pause");
  const status = document.getElementById("status");
  let paused = false;

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
  });

  // replace puts in the new content of a part, and keeps the focus, the open details and the scroll position.
  function replace(part, fresh) {
    if (part.innerHTML === fresh.innerHTML) return;
    const focus = part.contains(document.activeElement) ? document.activeElement : null;
    const link = focus && focus.getAttribute("href");
    const open = [...part.querySelectorAll("details[open]")].map((d) => d.id);
    const scrolled = [...part.querySelectorAll(".scroll")].map((s) => [s.id, s.scrollLeft, s.scrollTop]);
    part.replaceChildren(...fresh.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (!focus) return;
    const again = focus.id ? document.getElementById(focus.id)
      : [...part.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === link);
    again?.focus({ preventScroll: true });
  }

  // follow keeps the names of the timeline in sight while it is scrolled sideways.
  function follow() {
    const names = document.getElementById("timeline-names");
    if (!names) return;
    const picture = names.ownerSVGElement;
    const scale = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
    const hidden = document.getElementById("timeline-scroll").getBoundingClientRect().left - picture.getBoundingClientRect().left;
    if (hidden > 0) names.setAttribute("transform", `translate(${hidden / scale})`);
    else names.removeAttribute("transform");
  }
  document.addEventListener("scroll", follow, true);
  addEventListener("resize", follow);
  follow();

  // say changes the status only if it differs, so that a screen reader does not repeat it.
  function say(text, className) {
    if (!status) return;
    if (status.textContent !== text) status.textContent = text;
    status.className = className;
  }

  async function update() {
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = [...document.querySelectorAll(".live")].map((part) => [part, page.getElementById(part.id)]);
      if (parts.some(([, fresh]) => !fresh)) throw new Error(answer.statusText);
      if (paused) return;
      for (const [part, fresh] of parts) replace(part, fresh);
      follow();
      const now = page.getElementById("status");
      if (now) say(now.textContent, now.className);
      document.title = page.title;
    } catch {
      say("This page is out of date: quorumlock serve does not answer", "bad");
    }
  }

  (async () => {
    for (;;) {
      await new Promise((done) => setTimeout(done, every));
      if (!paused && !document.hidden) await update();
    }
  })();
})();
