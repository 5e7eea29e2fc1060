const table = document.querySelector("table.runs");
const body = table.tBodies[0];
table.querySelectorAll("th button").forEach((button) => {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const column = heading.cellIndex;
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const numeric = heading.dataset.sort === "number";
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
    const order = (one, other) => {
      const [left, right] = [key(one), key(other)];
      if (!left || !right) return Number(!left) - Number(!right); // what is not there comes last, either way
      return sign * (numeric ? left - right : left.localeCompare(right, undefined, { numeric: true }));
    };
    Array.from(body.rows).sort(order).forEach((row) => body.appendChild(row));
    heading.parentElement.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
  });
});
const form = document.querySelector(".filters");
form.hidden = false;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", () => {
  const wanted = Object.fromEntries(["verdict", "cause", "rule", "name"].map((name) => [name, form.elements[name].value]));
  const keys = new Set();
  for (const row of body.rows) {
    const fits =
      (!wanted.verdict || row.dataset.verdict === wanted.verdict) &&
      (!wanted.cause || row.dataset.cause === wanted.cause) &&
      (!wanted.rule || row.dataset.rules.split(", ").includes(wanted.rule)) &&
      row.querySelector(".name").textContent.toLowerCase().includes(wanted.name.toLowerCase());
    row.hidden = !fits;
    if (fits) keys.add(row.dataset.line);
  }
  form.querySelector("output").textContent = `${keys.size} of ${body.rows.length} runs`;
  PLOTS.forEach((plot) => plot.show(keys));
});
