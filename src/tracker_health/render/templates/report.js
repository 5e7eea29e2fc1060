const copies = Boolean(navigator.clipboard) && !FRAMED;
const working = {
  issue: copies,
  ack: copies,
  print: !FRAMED,
  appendix: !FRAMED,
};
document.querySelectorAll("[data-act]").forEach((button) => {
  const what = button.dataset.act;
  button.hidden = !working[what];
  button.addEventListener("click", () => {
    if (DATA[what]) {
      navigator.clipboard.writeText(DATA[what]).then(
        () => { button.textContent = "Copied"; },
        () => { button.textContent = "Could not copy"; },
      );
      return;
    }
    document.body.classList.toggle("appendix", what === "appendix");
    print();
  });
});
