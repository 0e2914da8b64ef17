// The workloads and the client of go-ycsb with its RocksDB driver, which calls the library of
// RocksDB's C API that the loader finds, through gorocksdb. go-ycsb's own program is not built,
// because it links the drivers of thirty other databases.
//
//	ycsb [-load] WORKLOAD [NAME=VALUE...]
//
// It is built in this folder, and run once with RocksDB's library and once with KarstDB's:
//
//	CGO_CFLAGS="-I$PWD/before -IPREFIX/include -w" go build -tags rocksdb -o /tmp/ycsb .
//	/tmp/ycsb -load WORKLOADS/workloada rocksdb.dir=DIR threadcount=8
//	LD_LIBRARY_PATH=PREFIX/lib /tmp/ycsb -load WORKLOADS/workloada rocksdb.dir=OTHER threadcount=8
//
// SPDX-License-Identifier: Apache-2.0
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/magiconair/properties"
	_ "github.com/pingcap/go-ycsb/db/rocksdb"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	_ "github.com/pingcap/go-ycsb/pkg/workload"
	"github.com/pingcap/go-ycsb/pkg/ycsb"
)

func main() {
	load := flag.Bool("load", false, "fill the database, which is made anew")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("a file with a workload is missing")
	}
	settings := properties.MustLoadFile(flag.Arg(0), properties.UTF8)
	for _, setting := range flag.Args()[1:] {
		settings.Merge(properties.MustLoadString(setting))
	}
	command := "run"
	if *load {
		command = "load"
		settings.Set(prop.DropData, "true")
	}
	settings.Set(prop.Command, command)
	settings.Set(prop.DoTransactions, fmt.Sprint(!*load))
	measurement.InitMeasure(settings)
	workload, err := ycsb.GetWorkloadCreator("core").Create(settings)
	if err != nil {
		log.Fatal(err)
	}
	db, err := ycsb.GetDBCreator("rocksdb").Create(settings)
	if err != nil {
		log.Fatal(err)
	}
	begun := time.Now()
	client.NewClient(settings, workload, client.DbWrapper{DB: db}).Run(context.Background())
	fmt.Printf("Run finished, takes %s\n", time.Since(begun))
	measurement.Output()
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}
