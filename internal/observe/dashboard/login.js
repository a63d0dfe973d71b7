"use strict";
// The token goes into the body of a request, never into an address. The answer is the key of a session: see session.go.
const form = document.querySelector("form"), wrong = document.getElementById("wrong");
form.addEventListener("submit", async (e) => {
  e.preventDefault();
  try {
    const answer = await fetch("/login", { method: "POST", body: new URLSearchParams(new FormData(form)) });
    if (answer.ok) {
      localStorage.setItem("key", await answer.text());
      return location.replace("/");
    }
    wrong.textContent = await answer.text();
  } catch {
    wrong.textContent = "The launcher cannot be reached, or this browser keeps nothing for this page.";
  }
  wrong.hidden = false;
});
