// Imports cometbft-db, so that `go mod tidy` keeps it and the modules of its tests. It is never
// built: `cargo xtask peers` builds and runs its own tests.
//
// SPDX-License-Identifier: Apache-2.0

//go:build binding

package binding

import _ "github.com/cometbft/cometbft-db"
