// Scores of the site's search: a page that has the whole word comes before a title that only contains its letters.
// The name and the fields are Sphinx's.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 2,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 2,
  term: 5,
  partialTerm: 1,
};
