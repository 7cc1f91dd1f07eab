// How the page's scripts are written. What tsc finds (unknown names, unused ones) is left to it.
const NO_MARKUP = "A text enters the page as a text node: see assets/web/dom.js.";

/** Ways to make markup, or a program, from a text. */
const FORBIDDEN = [
  "innerHTML", "outerHTML", "insertAdjacentHTML", "setHTMLUnsafe", "createContextualFragment",
  "parseFromString", "write", "srcdoc",
];

export default [
  {
    files: ["**/*.js"],
    rules: {
      "eqeqeq": ["error", "always", { null: "ignore" }],
      "indent": ["error", 2, { SwitchCase: 1 }],
      "max-len": ["error", { code: 100 }],
      "max-statements-per-line": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-restricted-properties": ["error",
        ...FORBIDDEN.map((property) => ({ property, message: NO_MARKUP }))],
      "no-restricted-syntax": ["error", {
        selector: "TemplateElement[value.raw=/\\n/]",
        message: "The page's bundle drops comment lines, and would inside of a text too.",
      }],
      "no-tabs": "error",
      "no-trailing-spaces": "error",
      "no-unused-vars": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
      "quotes": ["error", "double", { avoidEscape: true, allowTemplateLiterals: true }],
      "semi": "error",
    },
  },
];
