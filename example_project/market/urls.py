"""The market's addresses."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from market.views import board, deeds, item, players

urlpatterns = [
    path("", board.market, name="market"),
    path("live/", board.live, name="market_live"),
    path("sales/<slug:which>/", board.shelf, name="shelf"),
    path("ledger/", board.ledger, name="ledger"),
    path("sell/", deeds.sell, name="sell"),
    path("sale/<int:pk>/", item.sale, name="sale"),
    path("sale/<int:pk>/live/", item.live, name="sale_live"),
    path("sale/<int:pk>/bid/", deeds.bid, name="bid"),
    path("sale/<int:pk>/watch/", deeds.watch, name="watch"),
    path("sale/<int:pk>/move/", deeds.move, name="move"),
    path("sale/<int:pk>/call-off/", deeds.call_off, name="call_off"),
    path("sale/<int:pk>/plan-again/", deeds.plan_again, name="plan_again"),
    path("letters/", players.letters, name="letters"),
    path("letters/count/", players.count, name="count"),
    path("sign-in/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("sign-in/play-as/", players.play_as, name="play_as"),
    path("sign-out/", LogoutView.as_view(), name="logout"),
]
