// Imports the binding grocksdb, so that `go mod tidy` keeps it and the modules of its tests. It is
// never built: `cargo xtask peers` builds and runs the binding's own tests.
//
// SPDX-License-Identifier: Apache-2.0

//go:build binding

package binding

import _ "github.com/linxGnu/grocksdb"
