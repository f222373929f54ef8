module greendot/bench/peers

go 1.23.0

require github.com/centrifugal/centrifugo/v5 v5.4.9
