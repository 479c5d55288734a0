// SPDX-License-Identifier: Apache-2.0
// Filters the table of kernels. An address may hold a choice: catalogue.html?op=gemm&device=gfx942
const form = document.querySelector("form.filters"), table = document.querySelector("table.catalogue");
if (form && table) {
  const columns = [...table.tHead.rows[0].cells].map(head => head.textContent);
  const rows = [...table.tBodies[0].rows].map(row => [row, [...row.cells].map(cell => cell.textContent)]);
  const controls = [...form.querySelectorAll("[data-column]")];
  const fits = {
    kernel: (text, wanted) => text.includes(wanted),
    dtype: (text, wanted) => text.split(" ").includes(wanted),
  };
  const filter = () => {
    const wanted = controls.filter(control => control.value)
        .map(({dataset: {column}, value}) => [columns.indexOf(column), value, fits[column] ?? ((a, b) => a === b)]);
    for (const [row, texts] of rows) row.hidden = !wanted.every(([at, value, fit]) => fit(texts[at], value));
    form.querySelector("output").textContent = `${rows.filter(([row]) => !row.hidden).length} of ${rows.length}`;
  };
  const address = new URLSearchParams(location.search);
  for (const control of controls) control.value = address.get(control.dataset.column) ?? "";
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());
  form.hidden = false;
  filter();
}
