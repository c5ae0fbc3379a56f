// Command manager runs a controller-runtime manager against a cache: a reconciler on a kind, typed or as
// metadata only, whose cache is scoped to a label, a metadata watch on another kind, and leader election on
// a lease of the same server. It answers its driver, ../python/scenario.py, with what its cache holds and
// what a handler of its informer saw; it is synced once it leads and the reconciler has seen the same.
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
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
	metadata = flag.Bool("metadata", false, "cache the metadata of cluster roles only")
)

// roles are what is cached: cluster roles, or their metadata.
func roles() (client.Object, client.ObjectList) {
	if !*metadata {
		return &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}
	}
	one, all := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
	one.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	all.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleList"))
	return one, all
}

// seen is what the reconciler read when it was called, and what the informer told its handlers since the
// driver last asked.
type seen struct {
	client client.Client
	mu     sync.Mutex
	latest map[string]string
	events [][3]string
}

func (s *seen) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	role, _ := roles()
	err := s.client.Get(ctx, request.NamespacedName, role)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.latest, request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	s.latest[request.Name] = role.GetResourceVersion()
	return reconcile.Result{}, nil
}

func (s *seen) handler() toolscache.ResourceEventHandler {
	note := func(kind string, object any) {
		if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		role := object.(client.Object)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, [3]string{kind, role.GetName(), role.GetResourceVersion()})
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(role any) { note("ADDED", role) },
		UpdateFunc: func(_, role any) { note("MODIFIED", role) },
		DeleteFunc: func(role any) { note("DELETED", role) },
	}
}

func (s *seen) drain() [][3]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = [][3]string{}
	return events
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
	kind, _ := roles()
	config := &rest.Config{Host: *server, QPS: -1}
	// A wildcard is not written to: the lease lives in one shard.
	electing := &rest.Config{Host: strings.ReplaceAll(*server, "/shards/*/clusters/*", "/shards/amber/clusters/root")}
	// Longer than the scenario keeps the server away: losing a lease ends a manager, as it should.
	lease, renew, retry := 2*time.Minute, 90*time.Second, 300*time.Millisecond
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			kind: {Label: chosen},
		}},
		LeaderElection: true, LeaderElectionConfig: electing, LeaderElectionID: "manager",
		LeaderElectionNamespace: "default", LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
	})
	if err != nil {
		return err
	}
	reconciler := &seen{client: manager.GetClient(), latest: map[string]string{}, events: [][3]string{}}
	bindings := &metav1.PartialObjectMetadata{}
	bindings.SetGroupVersionKind(schema.GroupVersionKind{Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRoleBinding"})
	// With metadata only, the builder's own projection of it would be another informer of the same kind.
	err = ctrl.NewControllerManagedBy(manager).Named("roles").Watches(kind, &handler.EnqueueRequestForObject{}).
		WatchesMetadata(bindings, &handler.EnqueueRequestForObject{}).Complete(reconciler)
	if err != nil {
		return err
	}
	informer, err := manager.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(reconciler.handler()); err != nil {
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
			case "events":
				streams := map[string]any{"streams": [][][3]string{reconciler.drain()}}
				if err := json.NewEncoder(os.Stdout).Encode(streams); err != nil {
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
		_, all := roles()
		if err := manager.GetClient().List(ctx, all); err != nil {
			return err
		}
		err := meta.EachListItem(all, func(object runtime.Object) error {
			role := object.(client.Object)
			place := role.GetAnnotations()
			items[place["kcp.io/shard"]+"|"+place["kcp.io/cluster"]+"||"+role.GetName()] = role.GetResourceVersion()
			names[role.GetName()] = role.GetResourceVersion()
			return nil
		})
		if err != nil {
			return err
		}
		synced = reconciler.agrees(names)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"synced": synced, "items": items})
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
