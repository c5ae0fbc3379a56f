package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// etcdStartMax is how long etcd may take to replay its log and to elect itself.
const etcdStartMax = time.Minute

// etcd is one member on loopback that syncs every write to disk, as in production.
type etcd struct {
	*embed.Etcd
	endpoint string
}

func startEtcd(ctx context.Context, directory string) (*etcd, error) {
	config := embed.NewConfig()
	config.Dir = directory
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = anyPort, anyPort
	config.ListenPeerUrls, config.AdvertisePeerUrls = anyPort, anyPort
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = false
	// The limits kube's own installers set.
	config.QuotaBackendBytes = 8 << 30
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(quiet())

	member, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("starting etcd: %w", err)
	}
	select {
	case <-member.Server.ReadyNotify():
		return &etcd{Etcd: member, endpoint: "http://" + member.Clients[0].Addr().String()}, nil
	case err := <-member.Err():
		member.Close()
		return nil, fmt.Errorf("starting etcd: %w", err)
	case <-time.After(etcdStartMax):
		member.Close()
		return nil, fmt.Errorf("etcd is not ready after %s", etcdStartMax)
	case <-ctx.Done():
		member.Close()
		return nil, ctx.Err()
	}
}

// compact forgets all history before the present revision, and returns that revision.
func (e *etcd) compact(ctx context.Context) (int64, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.endpoint}})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	state, err := client.Get(ctx, "none", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	_, err = client.Compact(ctx, state.Header.Revision, clientv3.WithCompactPhysical())
	return state.Header.Revision, err
}

// quiet tells only what is fatal: etcd warns of every slow sync of a busy test machine.
func quiet() *zap.Logger {
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(zapcore.FatalLevel)
	logger, err := config.Build()
	if err != nil {
		return zap.NewNop()
	}
	return logger
}
