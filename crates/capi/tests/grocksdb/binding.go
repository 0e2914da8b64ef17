// Names the binding grocksdb, so that `go mod tidy` keeps it and what its tests want. No program
// is made of this: `cargo xtask peers` builds and runs the binding's own tests.
//
// SPDX-License-Identifier: Apache-2.0

//go:build binding

package binding

import _ "github.com/linxGnu/grocksdb"
