/* The Theory lab: a section's words and figures, as the server wrote them. A figure's graph stays
   in the page and takes new data; plotly.js, which is large, is fetched with the first figure. */
(function (root) {
"use strict";

// plotly.js would name clip paths and patterns by the page's address, which changes with the settings:
// then they are not found. A plot that is to be exported names them by their ids alone.
const CONFIG = { displaylogo: false, _exportedPlot: true };
let plotly = null;

/** A figure with its table: the functions that show new numbers and a new drawing. */
function figure(section) {
  const graph = section.querySelector(".lab-plot"), details = section.querySelector("details");
  let numbers = "", drawing = "", width = 0;
  const tell = () => { if (details.open) details.lastElementChild.innerHTML = numbers; };
  const draw = () => {
    if (!drawing) return;
    const { data, layout } = JSON.parse(drawing);
    graph.style.height = `${layout.height}px`;
    width = layout.width = graph.offsetWidth;
    if (!width || !root.Plotly) return;
    if (graph.data) root.Plotly.react(graph, data, layout); else root.Plotly.newPlot(graph, data, layout, CONFIG);
  };
  details.addEventListener("toggle", tell);
  // not the window's size alone: what was hidden when it was drawn has a width when it is shown
  new ResizeObserver(() => { if (graph.offsetWidth !== width) draw(); }).observe(graph);
  plotly.then(draw);
  return {
    tell(table) { numbers = table; tell(); },
    draw(next) { if (next !== drawing) { drawing = next; draw(); } },
  };
}

root.QAlignLab = {
  /** A section's view in its element; its words are HTML that the server escaped. */
  mount(element, props, watch) {
    plotly ??= props.plotly ? import(new URL(props.plotly, document.baseURI)) : Promise.resolve();  // else in the head
    const [told] = element.children, figures = [...element.querySelectorAll(".lab-figure")].map(figure);
    const show = () => {
      if (!props.value) return;
      const view = JSON.parse(props.value);
      told.innerHTML = view.told;
      view.figures.forEach(([, table], k) => figures[k].tell(table));
      view.figures.forEach(([drawing], k) => figures[k].draw(drawing));
    };
    watch("value", show);
    show();
  },
};
})(window);
