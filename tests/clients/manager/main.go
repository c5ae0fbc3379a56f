// Command manager runs a controller-runtime manager against a cache: a reconciler on a typed kind, a cache
// that is scoped to a label for one kind and metadata only for another, and leader election on a lease of
// the same server. It answers questions as the informer in ../go does; what it dumps is what its cache
// holds, and it says `synced` once it leads and its caches are filled.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var (
	server   = flag.String("server", "", "base URL, scope included")
	selector = flag.String("selector", "", "label selector of the cache")
)

// seen is what the reconciler was called with, and what it read then.
type seen struct {
	client client.Client
	mu     sync.Mutex
	calls  int
	latest map[string]string
}

func (s *seen) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var role rbacv1.ClusterRole
	err := s.client.Get(ctx, request.NamespacedName, &role)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if err != nil {
		delete(s.latest, request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	s.latest[request.Name] = role.ResourceVersion
	return reconcile.Result{}, nil
}

func main() {
	flag.Parse()
	log.SetLogger(logr.Discard())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	chosen, err := labels.Parse(*selector)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		return err
	}
	config := &rest.Config{Host: *server, QPS: -1}
	// A wildcard is not written to: the lease lives in one shard.
	electing := &rest.Config{Host: strings.ReplaceAll(*server, "/shards/*/clusters/*", "/shards/amber/clusters/root")}
	// Longer than the scenario keeps the server away: losing a lease ends a manager, as it should.
	lease, renew, retry := 2*time.Minute, 90*time.Second, 300*time.Millisecond
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&rbacv1.ClusterRole{}: {Label: chosen},
		}},
		LeaderElection: true, LeaderElectionConfig: electing, LeaderElectionID: "manager",
		LeaderElectionNamespace: "default", LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
	})
	if err != nil {
		return err
	}
	reconciler := &seen{client: manager.GetClient(), latest: map[string]string{}}
	bindings := &metav1.PartialObjectMetadata{}
	bindings.SetGroupVersionKind(schema.GroupVersionKind{Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRoleBinding"})
	err = ctrl.NewControllerManagedBy(manager).For(&rbacv1.ClusterRole{}).
		WatchesMetadata(bindings, &handler.EnqueueRequestForObject{}).Complete(reconciler)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	questions := make(chan string)
	go ask(questions)
	for {
		select {
		case err := <-ended:
			// A lost lease ends a manager; a supervisor would start it again, this one says so.
			return fmt.Errorf("the manager ended: %v", err)
		case question := <-questions:
			switch question {
			case "dump":
				if err := dump(ctx, manager, reconciler); err != nil {
					return err
				}
			default:
				return nil
			}
		}
	}
}

func ask(questions chan<- string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		questions <- lines.Text()
	}
	questions <- "quit"
}

// dump tells what the cache holds. It is synced when the reconciler, which only runs on the leader, has
// brought itself to the same state.
func dump(ctx context.Context, manager ctrl.Manager, reconciler *seen) error {
	items, names := map[string]string{}, map[string]string{}
	synced := false
	select {
	case <-manager.Elected():
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		synced = manager.GetCache().WaitForCacheSync(ctx)
	default:
	}
	if synced {
		var roles rbacv1.ClusterRoleList
		if err := manager.GetClient().List(ctx, &roles); err != nil {
			return err
		}
		for _, role := range roles.Items {
			place := role.Annotations
			items[place["kcp.io/shard"]+"|"+place["kcp.io/cluster"]+"||"+role.Name] = role.ResourceVersion
			names[role.Name] = role.ResourceVersion
		}
		synced = reconciler.agrees(names)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"synced": synced, "items": items, "added": 0, "updated": 0, "deleted": 0})
}

func (s *seen) agrees(names map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(names) != len(s.latest) {
		return false
	}
	for name, version := range names {
		if s.latest[name] != version {
			return false
		}
	}
	return true
}
