package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// progress knows the storages of each type that read etcd without a watch cache. Their watches send a
// bookmark when etcd is asked how far it has told them of events; no kube-apiserver passes that on to its
// clients.
type progress struct {
	generic.RESTOptionsGetter
	lock     sync.Mutex
	storages map[schema.GroupResource]map[*bookmarked]struct{}
}

// bookmarked is a storage whose watches pass etcd's progress on as bookmarks, where a client allows them.
type bookmarked struct{ storage.Interface }

func (b *bookmarked) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	options.ProgressNotify = options.Predicate.AllowWatchBookmarks
	return b.Interface.Watch(ctx, key, options)
}

func withProgress(getter generic.RESTOptionsGetter) *progress {
	return &progress{RESTOptionsGetter: getter, storages: map[schema.GroupResource]map[*bookmarked]struct{}{}}
}

// GetRESTOptions is the embedded getter's, with storages that are known here until they are destroyed.
func (p *progress) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := p.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	undecorated := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs,
		indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		inner, destroy, err := undecorated(config, prefix, key, newFunc, newListFunc, attributes, trigger, indexers)
		if err != nil {
			return inner, destroy, err
		}
		known := &bookmarked{inner}
		p.add(resource, known)
		return known, func() { p.remove(resource, known); destroy() }, nil
	}
	return options, nil
}

func (p *progress) add(resource schema.GroupResource, known *bookmarked) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.storages[resource] == nil {
		p.storages[resource] = map[*bookmarked]struct{}{}
	}
	p.storages[resource][known] = struct{}{}
}

func (p *progress) remove(resource schema.GroupResource, known *bookmarked) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.storages[resource], known)
}

func (p *progress) of(resource schema.GroupResource) []*bookmarked {
	p.lock.Lock()
	defer p.lock.Unlock()
	known := make([]*bookmarked, 0, len(p.storages[resource]))
	for storage := range p.storages[resource] {
		known = append(known, storage)
	}
	return known
}

// ServeHTTP serves POST /reference/progress?resource=PLURAL.GROUP: etcd is asked how far the watches of the
// type are, and they say so by a bookmark each.
func (p *progress) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		http.Error(response, "POST only", http.StatusMethodNotAllowed)
		return
	}
	resource := schema.ParseGroupResource(request.URL.Query().Get("resource"))
	known := p.of(resource)
	if len(known) == 0 {
		http.Error(response, fmt.Sprintf("%s is not served from etcd without a watch cache", resource), http.StatusNotFound)
		return
	}
	for _, storage := range known {
		if err := storage.RequestWatchProgress(request.Context()); err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
	}
}
