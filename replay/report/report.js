// Plays a recording where its button stands. The recording is in the button.
for (const button of document.querySelectorAll("button[data-cast]")) {
  button.addEventListener("click", () => {
    const box = document.createElement("div");
    box.className = "player";
    button.parentElement.after(box);
    button.parentElement.remove();
    AsciinemaPlayer.create({ data: button.dataset.cast }, box, { fit: "width", idleTimeLimit: 2, autoPlay: true, terminalFontFamily: "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" });
  });
}
// What a link points to is opened.
const open = () => {
  const row = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = row && row.querySelector("details");
  if (details) details.open = true;
};
addEventListener("hashchange", open);
open();
