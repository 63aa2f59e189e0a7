"""Text from speech: times of tokens, words of tokens, joining of chunks. Pure functions, which
web/src has in TypeScript and tests/conformance/speech.json compares.
"""
