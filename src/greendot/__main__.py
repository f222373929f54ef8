"""python -m greendot"""

from greendot.cli import main

main()
