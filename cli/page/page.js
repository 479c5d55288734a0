// SPDX-License-Identifier: Apache-2.0
// Filters and sorts the listings of a profile's page, which says everything without this script.
"use strict";
document.documentElement.classList.add("js");

for (const card of document.querySelectorAll(".code-card")) {
  const table = card.querySelector(".listing"), body = table.tBodies[0];
  const rows = [...body.rows], search = card.querySelector("input"), choice = card.querySelector("select");
  const shown = card.querySelector("output");
  const cycles = row => Number(row.dataset.cycles || 0);
  const find = () => new Set([...rows].sort((a, b) => cycles(b) - cycles(a)).slice(0, 50));
  let dearest;

  const update = () => {
    if (choice.value === "dearest") dearest ??= find();
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase().trimEnd(); // ends with the source line
      const chosen = choice.value === "all" || (choice.value === "ran" ? row.dataset.issues > 0
                                                                       : dearest.has(row) && cycles(row) > 0);
      row.hidden = !chosen || !words.every(word => /:\d+$/.test(word) ? text.endsWith(word) : text.includes(word));
      count += row.hidden || row.classList.contains("function") ? 0 : 1;
    }
    shown.textContent = `${count} shown`;
  };

  const sort = head => {
    const by = head.dataset.by, before = head.getAttribute("aria-sort");
    const order = before ? (before === "descending" ? "ascending" : "descending")
                         : by === "at" ? "ascending" : "descending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const place = new Map(rows.map((row, i) => [row, i]));
    const value = by === "at" ? row => place.get(row) : row => Number(row.dataset[by] || 0);
    const sorted = [...rows].sort((a, b) => sign * (value(a) - value(b)) || place.get(a) - place.get(b));
    body.replaceChildren(...sorted);
  };

  search.addEventListener("input", update);
  choice.addEventListener("change", update);
  for (const head of table.tHead.querySelectorAll("[data-by]")) head.addEventListener("click", () => sort(head));
  for (const line of card.parentElement.querySelectorAll("tr[data-line]")) {
    line.addEventListener("click", () => {
      search.value = line.dataset.line;
      update();
      card.open = true;
      card.scrollIntoView();
    });
  }
}
