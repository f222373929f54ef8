// The button below the animation: it shows a still picture instead. Without motion there is nothing to pause.
(() => {
  const button = document.querySelector("#film button");
  const sources = [...document.querySelectorAll("#film source[data-moves]")].map((element) => [element, element.media]);
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  let paused = false;

  const draw = () => {
    for (const [element, media] of sources) element.media = paused ? "not all" : media;
    button.textContent = paused ? "Play" : "Pause";
    button.hidden = reduced.matches;
  };
  button.addEventListener("click", () => {
    paused = !paused;
    draw();
  });
  reduced.addEventListener("change", draw);
  draw();
})();
