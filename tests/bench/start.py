def run(bench, cases, rounds, seconds):
    return {}
