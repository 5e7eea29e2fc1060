"use strict";
document.querySelectorAll("th button").forEach((button) => {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
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
