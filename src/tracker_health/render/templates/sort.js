"use strict";
document.querySelectorAll("th button").forEach((button) => {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const column = heading.cellIndex;
    const falls = heading.getAttribute("aria-sort") === "ascending";
    const key = (row) => row.cells[column].dataset.key || row.cells[column].textContent.trim();
    const order = (one, other) => {
      const [left, right] = [key(one), key(other)];
      const numbers = [parseFloat(left), parseFloat(right)];
      const compared = numbers.some(Number.isNaN) ? left.localeCompare(right) : numbers[0] - numbers[1];
      return falls ? -compared : compared;
    };
    Array.from(body.rows).sort(order).forEach((row) => body.appendChild(row));
    heading.parentElement.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
  });
});
