'''A line that is written over and over while an epoch runs.'''
import sys
import time

WIDTH = 30
started = time.time()


def progress_bar(current, total, msg=None):
    global started
    if current == 0:
        started = time.time()
    done = int(WIDTH * (current + 1) / total)
    sys.stdout.write('\r |' + '#' * done + '.' * (WIDTH - done) + '| ')
    sys.stdout.write('%5.1fs  ' % (time.time() - started))
    if msg:
        sys.stdout.write(msg)
    if current + 1 == total:
        sys.stdout.write('\n')
    sys.stdout.flush()
