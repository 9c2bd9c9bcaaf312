from marti_ext.cli import main

main()
