const working = {
  copy: Boolean(navigator.clipboard) && !FRAMED,
  print: !FRAMED,
  appendix: !FRAMED,
};
document.querySelectorAll("[data-act]").forEach((button) => {
  const what = button.dataset.act;
  button.hidden = !working[what];
  button.addEventListener("click", () => {
    if (what === "copy") {
      navigator.clipboard.writeText(DATA.issue).then(
        () => { button.textContent = "Copied"; },
        () => { button.textContent = "Could not copy"; },
      );
      return;
    }
    document.body.classList.toggle("appendix", what === "appendix");
    print();
  });
});
