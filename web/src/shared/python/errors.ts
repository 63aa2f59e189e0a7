// Classes of Python's errors.

export class ValueError extends Error {}

/** Never thrown: 1 / 0 is infinite and the root of -1 not a number here. */
export class ArithmeticError extends Error {}

export class KeyError extends Error {}

export class IndexError extends Error {}

export class NotImplementedError extends Error {}

export class AssertionError extends Error {}
