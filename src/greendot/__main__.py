from greendot.cli import main

main()
