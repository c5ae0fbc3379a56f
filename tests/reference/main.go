// A real Kubernetes apiserver for custom resources with its own etcd, in one process.
//
// It is the oracle of the differential suite, the peer of the benchmarks and a source shard for tests of
// replication. README.md says how it is built and what it is not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

// settings are the flags, as typed.
type settings struct {
	listen        string
	dataDir       string
	watchCache    bool
	tls           bool
	historyWindow time.Duration
	compaction    time.Duration
	featureGates  string
}

func parse() settings {
	var s settings
	flag.StringVar(&s.listen, "listen", "127.0.0.1:0", "address to serve; port 0 picks one. Without -tls a loopback address")
	flag.StringVar(&s.dataDir, "data-dir", "./reference-data", "directory of etcd, and of the certificate with -tls")
	flag.BoolVar(&s.watchCache, "watch-cache", true, "serve reads from the watch cache, as kube-apiserver does")
	flag.BoolVar(&s.tls, "tls", false, "serve TLS with a generated certificate instead of plain HTTP")
	flag.DurationVar(&s.historyWindow, "history-window", 75*time.Second, "least age of events that the watch cache keeps")
	flag.DurationVar(&s.compaction, "compaction-interval", 5*time.Minute, "how often etcd's history is compacted; 0 is never")
	flag.StringVar(&s.featureGates, "feature-gates", "", "kube's feature gates, as Name=true,…")
	klog.InitFlags(nil)
	// Only what an operator of a test must know; -v and -stderrthreshold change it.
	_ = flag.Set("logtostderr", "false")
	_ = flag.Set("stderrthreshold", "FATAL")
	_ = flag.Set("log_file", os.DevNull)
	flag.Parse()
	return s
}

func main() {
	s := parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then closes everything in the reverse order.
func run(ctx context.Context, s settings) error {
	if s.featureGates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(s.featureGates); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	if address := listener.Addr().(*net.TCPAddr); !s.tls && !address.IP.IsLoopback() {
		return fmt.Errorf("%s is not a loopback address: everybody may do everything here, so this needs -tls", address)
	}
	if err := os.MkdirAll(s.dataDir, 0o700); err != nil {
		return err
	}
	store, err := startEtcd(ctx, filepath.Join(s.dataDir, "etcd"))
	if err != nil {
		return err
	}
	defer store.Close()

	server, err := newServer(s, listener, store)
	if err != nil {
		return err
	}
	// The server outlives the signal until it has drained.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.run(serving) }()
	stopServing := func() error { end(); return <-ended }

	if err := declareTypes(ctx, server); err != nil {
		return errors.Join(err, stopServing())
	}
	fmt.Printf("listening on %s\n", server.url())
	select {
	case <-ctx.Done():
		return stopServing()
	case err := <-ended:
		return fmt.Errorf("the server ended by itself: %w", err)
	}
}
