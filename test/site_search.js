// Answers questions as the search of the site does, with Sphinx's own code and index, and without a browser.
//
//   node test/site_search.js build/docs < questions
//
// Reads a question a line, and prints for each the first five pages as JSON.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const element = { children: [], classList: { add() {} }, removeChild() {}, appendChild() {}, dataset: {} };
const context = vm.createContext({
  document: { getElementById: () => null, addEventListener() {}, documentElement: element, readyState: "loading" },
  addEventListener() {},
  location: { search: "" },
  localStorage: { setItem() {} },
  DOCUMENTATION_OPTIONS: { BUILDER: "html", FILE_SUFFIX: ".html", LINK_SUFFIX: ".html" },
  SPHINX_HIGHLIGHT_ENABLED: false,
  _ready() {},
  _: (text) => text, // the translation
  console,
});
context.window = context;
for (const file of ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"]) {
  vm.runInContext(fs.readFileSync(path.join(site, file), "utf8").replace("const Search =", "var Search ="), context, file);
}
for (const question of fs.readFileSync(0, "utf8").trim().split("\n")) {
  context.question = question;
  const found = vm.runInContext("Search._performSearch(...Search._parseQuery(question))", context);
  const pages = found.map((item) => item[0] + item[2]).reverse();
  process.stdout.write(JSON.stringify(pages.slice(0, 5)) + "\n");
}
