//go:build tools

// Names what bench/peer_install.py builds, so that go.mod and go.sum pin it.
package peers

import _ "github.com/centrifugal/centrifugo/v5"
