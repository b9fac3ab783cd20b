"""Starting, watching and ending processes: the only package that forks or starts an interpreter.

signals      hold Ctrl-C back while processes are forked; describe how a process ended
ports        find a free port
fork         fork one child of this process, safely
lazy_dynamo  put off the import of torch's compiler until something is compiled
sandbox      run a module apart from everything, with a time limit
safe_fork    find reasons not to fork this process
data_worker  fork data workers, and replace one that hangs in its fork
replicas     run a function on several forked replicas, and collect what they return
server       run as a process that has imported torch and forks programs on request
forked       ask that server to start a program
fresh        start Python in a new interpreter
choose       decide whether a script may be forked or needs a fresh interpreter
tree         find and end processes, even those that left their group
"""
